"""Upstream's Python client, unchanged, against an empty registry at the host and the port of the arguments."""

import sys

from model_registry import ModelRegistry
from model_registry.exceptions import StoreError

registry = ModelRegistry(sys.argv[1], int(sys.argv[2]), author="ann", is_secure=False)


def register(name, version):
    return registry.register_model(
        name,
        f"s3://bucket/{name}/{version}.onnx",
        version=version,
        model_format_name="onnx",
        model_format_version="1",
        metadata={"int": 7, "float": 0.5, "bool": True, "str": "text"},
    )


# Register: a model, two versions, and an artifact each.
model = register("churn", "1")
assert register("churn", "model:latest").id == model.id
try:
    register("churn", "1")
    raise AssertionError("a version was registered twice")
except StoreError:
    pass

# Find.
assert registry.get_registered_model("churn").id == model.id
assert registry.get_registered_model("none") is None
version = registry.get_model_version("churn", "1")
assert version.custom_properties == {"int": 7, "float": 0.5, "bool": True, "str": "text"}, version.custom_properties
assert registry.get_model_version("churn", "model:latest").name == "model:latest"
artifact = registry.get_model_artifact("churn", "1")
assert (artifact.uri, artifact.model_format_name) == ("s3://bucket/churn/1.onnx", "onnx")

# Update.
model.description = "updated"
assert registry.update(model).description == "updated"
version.custom_properties = {"only": "this"}
registry.update(version)
assert registry.get_model_version("churn", "1").custom_properties == {"only": "this"}
artifact.uri = "s3://bucket/moved.onnx"
registry.update(artifact)
assert registry.get_model_artifact("churn", "1").uri == "s3://bucket/moved.onnx"

# List: pages neither lose nor repeat.
names = {"churn"} | {f"model-{index}" for index in range(11)}
for name in sorted(names - {"churn"}):
    register(name, "1")
listed = [it.name for it in registry.get_registered_models().page_size(4)]
assert sorted(listed) == sorted(names), listed
newest = [it.name for it in registry.get_registered_models().order_by_creation_time().descending().page_size(5)]
assert newest[0] == "model-9" and len(newest) == len(names), newest
assert [it.name for it in registry.get_model_versions("churn").page_size(1)] == ["1", "model:latest"]

# Experiments left the client in 0.3.18.
if hasattr(registry, "start_experiment_run"):
    with registry.start_experiment_run(experiment_name="tuning") as run:
        run.log_param("rate", 0.1)
        for step in range(3):
            run.log_metric("loss", 1.0 / (step + 1), step=step)
    assert [it.name for it in registry.get_experiments()] == ["tuning"]
    (found,) = list(registry.get_experiment_runs(experiment_name="tuning"))
    logs = {it.name: it for it in registry.get_experiment_run_logs(run_id=found.id)}
    assert set(logs) == {"rate", "loss"}, logs
    assert abs(logs["loss"].value - 1 / 3) < 1e-9

print("the client is content")
