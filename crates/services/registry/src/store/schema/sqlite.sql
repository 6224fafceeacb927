-- The tables of the registry on SQLite: those of PostgreSQL with SQLite's types, and the
-- indexes that its planner needs.

CREATE TABLE "Type" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    version TEXT,
    type_kind INTEGER NOT NULL,
    description TEXT,
    input_type TEXT,
    output_type TEXT,
    external_id TEXT UNIQUE
);
CREATE INDEX idx_type_name ON "Type" (name);

CREATE TABLE "ParentType" (
    type_id INTEGER NOT NULL,
    parent_type_id INTEGER NOT NULL,
    PRIMARY KEY (type_id, parent_type_id)
) WITHOUT ROWID;

CREATE TABLE "TypeProperty" (
    type_id INTEGER NOT NULL REFERENCES "Type" (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    data_type INTEGER,
    PRIMARY KEY (type_id, name)
) WITHOUT ROWID;

CREATE TABLE "Context" (
    id INTEGER PRIMARY KEY,
    type_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    external_id TEXT UNIQUE,
    create_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    last_update_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_context_type_id ON "Context" (type_id);
CREATE INDEX idx_context_create_time_since_epoch ON "Context" (type_id, create_time_since_epoch);
CREATE INDEX idx_context_last_update_time_since_epoch ON "Context" (type_id, last_update_time_since_epoch);

CREATE TABLE "ContextProperty" (
    context_id INTEGER NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    is_custom_property INTEGER NOT NULL,
    int_value INTEGER,
    double_value REAL,
    string_value TEXT,
    byte_value BLOB,
    proto_value BLOB,
    bool_value INTEGER,
    PRIMARY KEY (context_id, name, is_custom_property)
) WITHOUT ROWID;

CREATE TABLE "Artifact" (
    id INTEGER PRIMARY KEY,
    type_id INTEGER NOT NULL,
    uri TEXT,
    state INTEGER,
    name TEXT,
    external_id TEXT UNIQUE,
    create_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    last_update_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_artifact_type_id ON "Artifact" (type_id);
CREATE INDEX idx_artifact_create_time_since_epoch ON "Artifact" (type_id, create_time_since_epoch);
CREATE INDEX idx_artifact_last_update_time_since_epoch ON "Artifact" (type_id, last_update_time_since_epoch);

CREATE TABLE "ArtifactProperty" (
    artifact_id INTEGER NOT NULL REFERENCES "Artifact" (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    is_custom_property INTEGER NOT NULL,
    int_value INTEGER,
    double_value REAL,
    string_value TEXT,
    byte_value BLOB,
    proto_value BLOB,
    bool_value INTEGER,
    PRIMARY KEY (artifact_id, name, is_custom_property)
) WITHOUT ROWID;

CREATE TABLE "Execution" (
    id INTEGER PRIMARY KEY,
    type_id INTEGER NOT NULL,
    last_known_state INTEGER,
    name TEXT,
    external_id TEXT UNIQUE,
    create_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    last_update_time_since_epoch INTEGER NOT NULL DEFAULT 0,
    UNIQUE (type_id, name)
);
CREATE INDEX idx_execution_type_id ON "Execution" (type_id);
CREATE INDEX idx_execution_create_time_since_epoch ON "Execution" (type_id, create_time_since_epoch);
CREATE INDEX idx_execution_last_update_time_since_epoch ON "Execution" (type_id, last_update_time_since_epoch);

CREATE TABLE "ExecutionProperty" (
    execution_id INTEGER NOT NULL REFERENCES "Execution" (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    is_custom_property INTEGER NOT NULL,
    int_value INTEGER,
    double_value REAL,
    string_value TEXT,
    byte_value BLOB,
    proto_value BLOB,
    bool_value INTEGER,
    PRIMARY KEY (execution_id, name, is_custom_property)
) WITHOUT ROWID;

CREATE TABLE "ParentContext" (
    context_id INTEGER NOT NULL,
    parent_context_id INTEGER NOT NULL,
    PRIMARY KEY (context_id, parent_context_id)
) WITHOUT ROWID;
CREATE INDEX idx_parentcontext_parent_context_id ON "ParentContext" (parent_context_id, context_id);

CREATE TABLE "Attribution" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    context_id INTEGER NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    artifact_id INTEGER NOT NULL REFERENCES "Artifact" (id) ON DELETE CASCADE,
    UNIQUE (context_id, artifact_id)
);
CREATE INDEX idx_attribution_artifact_id ON "Attribution" (artifact_id);

CREATE TABLE "Association" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    context_id INTEGER NOT NULL REFERENCES "Context" (id) ON DELETE CASCADE,
    execution_id INTEGER NOT NULL REFERENCES "Execution" (id) ON DELETE CASCADE,
    UNIQUE (context_id, execution_id)
);
CREATE INDEX idx_association_execution_id ON "Association" (execution_id);

CREATE TABLE "Event" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    artifact_id INTEGER NOT NULL,
    execution_id INTEGER NOT NULL,
    type INTEGER NOT NULL,
    milliseconds_since_epoch INTEGER,
    UNIQUE (artifact_id, execution_id, type)
);
CREATE INDEX idx_event_execution_id ON "Event" (execution_id);
CREATE TABLE "EventPath" (
    event_id INTEGER NOT NULL,
    is_index_step INTEGER NOT NULL,
    step_index INTEGER,
    step_key TEXT
);
CREATE INDEX idx_event_path_event_id ON "EventPath" (event_id);
CREATE TABLE "MLMDEnv" (
    schema_version INTEGER PRIMARY KEY
);
CREATE TABLE schema_migrations (
    version INTEGER PRIMARY KEY,
    dirty INTEGER NOT NULL
);
