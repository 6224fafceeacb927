//! What clients of MLflow, PostgreSQL and S3 run in pods.

/// Logs parameters, metrics, an artifact and a model.
pub(super) const LOG: &str = "
import mlflow

class Doubler(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * number for number in model_input]

mlflow.set_experiment('training')
with mlflow.start_run():
    mlflow.log_param('depth', 3)
    mlflow.log_metric('loss', 0.5, step=1)
    mlflow.log_metric('loss', 0.25, step=2)
    mlflow.log_text('a note', 'notes/note.txt')
    mlflow.pyfunc.log_model(
        name='model', python_model=Doubler(), registered_model_name='doubler', pip_requirements=[]
    )
print('logged a run, a model and an artifact')
";

/// Reads what [`LOG`] has logged.
pub(super) const READ: &str = "
import mlflow

client = mlflow.MlflowClient()
run = mlflow.search_runs(experiment_names=['training'], output_format='list')[0]
losses = [metric.value for metric in client.get_metric_history(run.info.run_id, 'loss')]
note = mlflow.artifacts.load_text(f'{run.info.artifact_uri}/notes/note.txt')
model = mlflow.pyfunc.load_model('models:/doubler/1')
print(run.data.params, losses, note, model.predict([1, 2]))
";

/// Uses a workspace in which the client has no rights.
pub(super) const WITHOUT_RIGHTS: &str = "
import mlflow

mlflow.set_workspace('default')
try:
    mlflow.MlflowClient().create_experiment('stolen')
except mlflow.MlflowException as error:
    print(error)
";

/// Logs to a database without a server.
pub(super) const LOG_WITHOUT_SERVER: &str = "
import os
import mlflow

mlflow.set_tracking_uri(os.environ['DATABASE'])
experiment = mlflow.create_experiment('past', artifact_location='s3://artifacts/past')
with mlflow.start_run(experiment_id=experiment):
    mlflow.log_param('logged_with', mlflow.__version__)
print('logged with', mlflow.__version__)
";

/// Reads what [`LOG_WITHOUT_SERVER`] has logged.
pub(super) const READ_OLDER: &str = "
import mlflow

mlflow.set_workspace('default')
print(mlflow.search_runs(experiment_names=['past'], output_format='list')[0].data.params)
";

/// Logs two runs with artifacts, and deletes one of them.
pub(super) const DELETE_A_RUN: &str = "
import json
import mlflow

def log():
    with mlflow.start_run() as run:
        mlflow.log_text('a note', 'note.txt')
    return run.info.run_id

mlflow.set_experiment('training')
kept, deleted = log(), log()
mlflow.delete_run(deleted)
print(json.dumps({'kept': kept, 'deleted': deleted}))
";

/// Prints the stage of every run, or why there is none.
pub(super) const FIND_RUNS: &str = "
import mlflow

def stage(run):
    try:
        return mlflow.MlflowClient().get_run(run).info.lifecycle_stage
    except mlflow.MlflowException as error:
        return error.error_code

print([stage(run) for run in RUNS])
";

/// PostgreSQL; `SETUP` is SQL.
pub(super) const POSTGRESQL: &str = "
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
export PGDATA=/data/database
$bin/initdb --username=admin --auth=trust --encoding=UTF8 --locale=C > /dev/null
echo 'host all all all trust' >> $PGDATA/pg_hba.conf
$bin/pg_ctl --wait start -o \"-c listen_addresses='' -c unix_socket_directories=/data\"
$bin/psql --host=/data --username=admin postgres <<'END'
SETUP
END
$bin/pg_ctl --wait stop
exec $bin/postgres -c listen_addresses='*' -c unix_socket_directories=/data
";

/// A database whose user may do anything in it.
pub(super) const OWN_DATABASE: &str = "CREATE USER mlflow; CREATE DATABASE mlflow OWNER mlflow;";

/// A database whose user may not create tables.
pub(super) const FOREIGN_DATABASE: &str = "CREATE USER mlflow; CREATE DATABASE mlflow;";

pub(super) const ALLOW_TABLES: &str = "GRANT ALL ON SCHEMA public TO mlflow";

pub(super) const SCHEMA: &str = "SELECT version_num FROM alembic_version";

/// Makes the bucket, and serves S3.
pub(super) const S3: &str = "
import os
import threading
import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address='0.0.0.0', port=9000)
server.start()
boto3.client('s3', endpoint_url='http://127.0.0.1:9000').create_bucket(Bucket='artifacts')
print('serving', flush=True)
threading.Event().wait()
";

/// Prints the names of all objects.
pub(super) const S3_OBJECTS: &str = "
import boto3

found = boto3.client('s3', endpoint_url='http://127.0.0.1:9000').list_objects_v2(Bucket='artifacts')
print(*(one['Key'] for one in found.get('Contents', [])), sep='\\n')
";
