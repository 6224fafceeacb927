"""Brings the databases of an MLflow server to the schema of the image. The exit code says how that ended."""

import importlib
import os
import sys

VERSION_MISMATCH = 10
BACKEND_NOT_SQL = 11
REGISTRY_NOT_SQL = 12
NOT_AT_HEAD = 13
UNKNOWN_REVISIONS = 14
RETRYABLE = 15

# How Alembic words that the revisions in the database are not those of the image.
REVISION_ERRORS = (
    "can't locate revision identified by",
    "multiple heads are present",
    "cycle is detected in revisions",
    "dependency cycle detected",
)


def end(code, text):
    print(text, file=sys.stderr)
    try:
        with open("/dev/termination-log", "w") as log:
            log.write(text)
    except OSError:
        pass
    sys.exit(code)


def normalized(version):
    return version.strip().removeprefix("v").split("+")[0]


def is_sql(uri):
    dialect = uri.split(":", 1)[0].split("+", 1)[0]
    return dialect in ("sqlite", "postgresql", "mysql")


def stores():
    """The databases with the exit code for one that is none; the backend comes first."""
    backend = os.environ.get("MLFLOW_BACKEND_STORE_URI", "")
    registry = os.environ.get("MLFLOW_REGISTRY_STORE_URI", "")
    found = [(backend, BACKEND_NOT_SQL)] if backend else []
    if registry and registry != backend:
        found.append((registry, REGISTRY_NOT_SQL))
    return found


def close_migration_gap(engine):
    """Images may know how to close gaps that earlier releases left in the revisions."""
    try:
        gap = importlib.import_module("mlflow.store.db.migration_gap")
    except ModuleNotFoundError:
        return
    gap.fix_migration_gap_if_needed(engine)


def migrate(uri, is_backend):
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    def revision(engine):
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    engine = utils.create_sqlalchemy_engine_with_retry(uri)
    try:
        if is_backend:
            close_migration_gap(engine)
        if revision(engine) is None:
            utils._initialize_tables(engine)
        else:
            utils._upgrade_db(engine)
        config = utils._get_alembic_config(uri)
        head = ScriptDirectory.from_config(config).get_current_head()
        if revision(engine) != head:
            end(NOT_AT_HEAD, f"the schema is at revision {revision(engine)}, and the image's head is {head}")
    finally:
        engine.dispose()


def main():
    found = stores()
    for uri, code in found:
        if not is_sql(uri):
            end(code, f"not a SQL database: {uri.split(':', 1)[0]}")
    if not found:
        return
    import mlflow

    supported = os.environ.get("SUPPORTED_MLFLOW_VERSION", "")
    if normalized(mlflow.__version__) != normalized(supported):
        end(VERSION_MISMATCH, f"the image has MLflow {mlflow.__version__}, and the operator supports {supported}")
    for uri, code in found:
        migrate(uri, is_backend=code == BACKEND_NOT_SQL)


try:
    main()
except Exception as error:
    text = f"{type(error).__name__}: {error}"
    is_revision_error = any(known in text.lower() for known in REVISION_ERRORS)
    end(UNKNOWN_REVISIONS if is_revision_error else RETRYABLE, text)
