-- The tables of the registry on MySQL, as of migration 21 of upstream's history, with the collation that makes texts
-- differ where they differ on the other databases. Names of keys follow upstream's.

CREATE TABLE "Type" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name varchar(255) NOT NULL,
    version varchar(255),
    type_kind tinyint(1) NOT NULL,
    description text,
    input_type text,
    output_type text,
    external_id varchar(255),
    UNIQUE KEY external_id (external_id),
    KEY idx_type_external_id (external_id),
    KEY idx_type_name (name)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "ParentType" (
    type_id int NOT NULL,
    parent_type_id int NOT NULL,
    PRIMARY KEY (type_id, parent_type_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "TypeProperty" (
    type_id int NOT NULL,
    name varchar(255) NOT NULL,
    data_type int,
    PRIMARY KEY (type_id, name)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Context" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    type_id int NOT NULL,
    name varchar(255) NOT NULL,
    external_id varchar(255),
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE KEY external_id (external_id),
    UNIQUE KEY type_id (type_id, name),
    KEY idx_context_create_time_since_epoch (create_time_since_epoch),
    KEY idx_context_external_id (external_id),
    KEY idx_context_last_update_time_since_epoch (last_update_time_since_epoch)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "ContextProperty" (
    context_id int NOT NULL,
    name varchar(255) NOT NULL,
    is_custom_property tinyint(1) NOT NULL,
    int_value int,
    double_value double,
    string_value mediumtext,
    byte_value mediumblob,
    proto_value mediumblob,
    bool_value tinyint(1),
    PRIMARY KEY (context_id, name, is_custom_property),
    KEY idx_context_property_double (name, is_custom_property, double_value),
    KEY idx_context_property_int (name, is_custom_property, int_value),
    KEY idx_context_property_string (name, is_custom_property, string_value(255))
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Artifact" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    type_id int NOT NULL,
    uri text,
    state int,
    name varchar(255),
    external_id varchar(255),
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE KEY external_id (external_id),
    UNIQUE KEY "UniqueArtifactTypeName" (type_id, name),
    KEY idx_artifact_create_time_since_epoch (create_time_since_epoch),
    KEY idx_artifact_external_id (external_id),
    KEY idx_artifact_last_update_time_since_epoch (last_update_time_since_epoch),
    KEY idx_artifact_uri (uri(255))
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "ArtifactProperty" (
    artifact_id int NOT NULL,
    name varchar(255) NOT NULL,
    is_custom_property tinyint(1) NOT NULL,
    int_value int,
    double_value double,
    string_value mediumtext,
    byte_value mediumblob,
    proto_value mediumblob,
    bool_value tinyint(1),
    PRIMARY KEY (artifact_id, name, is_custom_property),
    KEY idx_artifact_property_double (name, is_custom_property, double_value),
    KEY idx_artifact_property_int (name, is_custom_property, int_value),
    KEY idx_artifact_property_string (name, is_custom_property, string_value(255))
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Execution" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    type_id int NOT NULL,
    last_known_state int,
    name varchar(255),
    external_id varchar(255),
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE KEY external_id (external_id),
    UNIQUE KEY "UniqueExecutionTypeName" (type_id, name),
    KEY idx_execution_create_time_since_epoch (create_time_since_epoch),
    KEY idx_execution_external_id (external_id),
    KEY idx_execution_last_update_time_since_epoch (last_update_time_since_epoch)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "ExecutionProperty" (
    execution_id int NOT NULL,
    name varchar(255) NOT NULL,
    is_custom_property tinyint(1) NOT NULL,
    int_value int,
    double_value double,
    string_value mediumtext,
    byte_value mediumblob,
    proto_value mediumblob,
    bool_value tinyint(1),
    PRIMARY KEY (execution_id, name, is_custom_property),
    KEY idx_execution_property_double (name, is_custom_property, double_value),
    KEY idx_execution_property_int (name, is_custom_property, int_value),
    KEY idx_execution_property_string (name, is_custom_property, string_value(255))
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "ParentContext" (
    context_id int NOT NULL,
    parent_context_id int NOT NULL,
    PRIMARY KEY (context_id, parent_context_id),
    KEY idx_parentcontext_parent_context_id (parent_context_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Attribution" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    context_id int NOT NULL,
    artifact_id int NOT NULL,
    UNIQUE KEY context_id (context_id, artifact_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Association" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    context_id int NOT NULL,
    execution_id int NOT NULL,
    UNIQUE KEY context_id (context_id, execution_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "Event" (
    id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    artifact_id int NOT NULL,
    execution_id int NOT NULL,
    type int NOT NULL,
    milliseconds_since_epoch bigint,
    UNIQUE KEY "UniqueEvent" (artifact_id, execution_id, type),
    KEY idx_event_execution_id (execution_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "EventPath" (
    event_id int NOT NULL,
    is_index_step tinyint(1) NOT NULL,
    step_index int,
    step_key text,
    KEY idx_eventpath_event_id (event_id)
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE "MLMDEnv" (
    schema_version int PRIMARY KEY
) CHARACTER SET utf8mb4 COLLATE $COLLATION;

CREATE TABLE schema_migrations (
    version bigint PRIMARY KEY,
    dirty tinyint(1) NOT NULL
) CHARACTER SET utf8mb4 COLLATE $COLLATION;
