-- The tables of the registry on PostgreSQL, as of migration 24 of upstream's history.
-- Names of keys and indexes follow upstream's, which later migrations may refer to.

CREATE TABLE "Type" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name varchar(255) NOT NULL,
    version varchar(255),
    type_kind smallint NOT NULL,
    description text,
    input_type text,
    output_type text,
    external_id varchar(255) UNIQUE
);
CREATE INDEX idx_type_external_id ON "Type" (external_id);
CREATE INDEX idx_type_name ON "Type" (name);

CREATE TABLE "ParentType" (
    type_id integer NOT NULL,
    parent_type_id integer NOT NULL,
    PRIMARY KEY (type_id, parent_type_id)
);

CREATE TABLE "TypeProperty" (
    type_id integer NOT NULL REFERENCES "Type" (id) ON DELETE CASCADE,
    name varchar(255) NOT NULL,
    data_type integer,
    PRIMARY KEY (type_id, name)
);

CREATE TABLE "Context" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type_id integer NOT NULL,
    name varchar(255) NOT NULL,
    external_id varchar(255) UNIQUE,
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_context_create_time_since_epoch ON "Context" (create_time_since_epoch);
CREATE INDEX idx_context_external_id ON "Context" (external_id);
CREATE INDEX idx_context_last_update_time_since_epoch ON "Context" (last_update_time_since_epoch);
CREATE INDEX idx_context_type_id ON "Context" (type_id);

CREATE TABLE "ContextProperty" (
    context_id integer NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    name varchar(255) NOT NULL,
    is_custom_property boolean NOT NULL,
    int_value integer,
    double_value double precision,
    string_value text,
    byte_value bytea,
    proto_value bytea,
    bool_value boolean,
    PRIMARY KEY (context_id, name, is_custom_property)
);
CREATE INDEX idx_context_property_double ON "ContextProperty" (name, is_custom_property, double_value);
CREATE INDEX idx_context_property_int ON "ContextProperty" (name, is_custom_property, int_value);

CREATE TABLE "Artifact" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type_id integer NOT NULL,
    uri text,
    state integer,
    name varchar(255),
    external_id varchar(255) UNIQUE,
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_artifact_create_time_since_epoch ON "Artifact" (create_time_since_epoch);
CREATE INDEX idx_artifact_external_id ON "Artifact" (external_id);
CREATE INDEX idx_artifact_last_update_time_since_epoch ON "Artifact" (last_update_time_since_epoch);
CREATE INDEX idx_artifact_uri ON "Artifact" (uri);

CREATE TABLE "ArtifactProperty" (
    artifact_id integer NOT NULL REFERENCES "Artifact" (id) ON DELETE CASCADE,
    name varchar(255) NOT NULL,
    is_custom_property boolean NOT NULL,
    int_value integer,
    double_value double precision,
    string_value text,
    byte_value bytea,
    proto_value bytea,
    bool_value boolean,
    PRIMARY KEY (artifact_id, name, is_custom_property)
);
CREATE INDEX idx_artifact_property_double ON "ArtifactProperty" (name, is_custom_property, double_value);
CREATE INDEX idx_artifact_property_int ON "ArtifactProperty" (name, is_custom_property, int_value);
CREATE INDEX idx_artifact_property_artifact_id ON "ArtifactProperty" (artifact_id);

CREATE TABLE "Execution" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type_id integer NOT NULL,
    last_known_state integer,
    name varchar(255),
    external_id varchar(255) UNIQUE,
    create_time_since_epoch bigint NOT NULL DEFAULT 0,
    last_update_time_since_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_execution_create_time_since_epoch ON "Execution" (create_time_since_epoch);
CREATE INDEX idx_execution_external_id ON "Execution" (external_id);
CREATE INDEX idx_execution_last_update_time_since_epoch ON "Execution" (last_update_time_since_epoch);

CREATE TABLE "ExecutionProperty" (
    execution_id integer NOT NULL REFERENCES "Execution" (id) ON DELETE CASCADE,
    name varchar(255) NOT NULL,
    is_custom_property boolean NOT NULL,
    int_value integer,
    double_value double precision,
    string_value text,
    byte_value bytea,
    proto_value bytea,
    bool_value boolean,
    PRIMARY KEY (execution_id, name, is_custom_property)
);
CREATE INDEX idx_execution_property_double ON "ExecutionProperty" (name, is_custom_property, double_value);
CREATE INDEX idx_execution_property_int ON "ExecutionProperty" (name, is_custom_property, int_value);

CREATE TABLE "ParentContext" (
    context_id integer NOT NULL,
    parent_context_id integer NOT NULL,
    PRIMARY KEY (context_id, parent_context_id)
);
CREATE INDEX idx_parentcontext_parent_context_id ON "ParentContext" (parent_context_id);

CREATE TABLE "Attribution" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id integer NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    artifact_id integer NOT NULL REFERENCES "Artifact" (id) ON DELETE CASCADE,
    UNIQUE (context_id, artifact_id)
);
CREATE INDEX idx_attribution_context_artifact ON "Attribution" (context_id, artifact_id);

CREATE TABLE "Association" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id integer NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    execution_id integer NOT NULL REFERENCES "Execution" (id) ON DELETE CASCADE,
    UNIQUE (context_id, execution_id)
);

CREATE TABLE "Event" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    artifact_id integer NOT NULL,
    execution_id integer NOT NULL,
    type integer NOT NULL,
    milliseconds_since_epoch bigint,
    UNIQUE (artifact_id, execution_id, type)
);
CREATE INDEX idx_event_execution_id ON "Event" (execution_id);
CREATE TABLE "EventPath" (
    event_id integer NOT NULL,
    is_index_step boolean NOT NULL,
    step_index integer,
    step_key text
);
CREATE INDEX idx_event_path_event_id ON "EventPath" (event_id);
CREATE TABLE "MLMDEnv" (
    schema_version integer PRIMARY KEY
);
CREATE TABLE schema_migrations (
    version bigint PRIMARY KEY,
    dirty boolean NOT NULL
);
