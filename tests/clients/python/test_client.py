"""The Python client, on the cluster of KUBECONFIG_UNDER_TEST."""

import os
import threading
import unittest
import uuid

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = config.new_client_from_config(os.environ["KUBECONFIG_UNDER_TEST"])
        cls.core = client.CoreV1Api(cls.api)
        cls.apps = client.AppsV1Api(cls.api)

    @classmethod
    def tearDownClass(cls):
        cls.api.close()

    def setUp(self):
        self.namespace = f"python-{uuid.uuid4().hex[:12]}"
        namespace = client.V1Namespace(metadata=client.V1ObjectMeta(name=self.namespace))
        self.core.create_namespace(namespace)

    def tearDown(self):
        self.core.delete_namespace(self.namespace)

    def test_objects_are_created_read_changed_and_deleted(self):
        made = self.core.create_namespaced_config_map(self.namespace, config_map("a", k="1"))
        self.assertIsNotNone(made.metadata.creation_timestamp.tzinfo)
        made.data["k"] = "2"
        changed = self.core.replace_namespaced_config_map("a", self.namespace, made)
        self.assertEqual(changed.data, {"k": "2"})
        self.assertEqual(self.core.read_namespaced_config_map("a", self.namespace), changed)
        listed = self.core.list_namespaced_config_map(self.namespace, field_selector="metadata.name=a")
        self.assertEqual([item.metadata.name for item in listed.items], ["a"])
        status = self.core.delete_namespaced_config_map("a", self.namespace)
        self.assertEqual(status.status, "Success")
        self.core.create_namespaced_config_map(self.namespace, config_map("b"))
        self.core.delete_collection_namespaced_config_map(self.namespace, field_selector="metadata.name=b")
        with self.assertRaises(ApiException) as raised:
            self.core.read_namespaced_config_map("b", self.namespace)
        self.assertEqual(raised.exception.status, 404)

    def test_errors_have_their_codes_and_reasons(self):
        self.core.create_namespaced_config_map(self.namespace, config_map("a"))
        stale = self.core.read_namespaced_config_map("a", self.namespace)
        self.core.patch_namespaced_config_map("a", self.namespace, {"data": {"k": "1"}})
        cases = [
            (409, "AlreadyExists", lambda: self.core.create_namespaced_config_map(self.namespace, config_map("a"))),
            (409, "Conflict", lambda: self.core.replace_namespaced_config_map("a", self.namespace, stale)),
            (404, "NotFound", lambda: self.core.read_namespaced_pod("none", self.namespace)),
            (422, "Invalid", lambda: self.core.create_namespaced_config_map(self.namespace, config_map("No_Name"))),
        ]
        for code, reason, call in cases:
            with self.subTest(reason), self.assertRaises(ApiException) as raised:
                call()
            self.assertEqual(raised.exception.status, code)
            self.assertIn(f'"reason":"{reason}"', raised.exception.body)

    def test_pages_are_followed(self):
        for number in range(5):
            labels = {"page": "yes"}
            body = config_map(f"c{number}")
            body.metadata.labels = labels
            self.core.create_namespaced_config_map(self.namespace, body)
        names, token = [], None
        while True:
            page = self.core.list_namespaced_config_map(
                self.namespace, label_selector="page=yes", limit=2, _continue=token
            )
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue
            if not token:
                break
        self.assertEqual(names, [f"c{number}" for number in range(5)])

    def test_a_watch_sees_every_change(self):
        version = self.core.list_namespaced_secret(self.namespace).metadata.resource_version

        def work():
            body = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"})
            self.core.create_namespaced_secret(self.namespace, body)
            self.core.patch_namespaced_secret("s", self.namespace, {"metadata": {"labels": {"x": "y"}}})
            self.core.delete_namespaced_secret("s", self.namespace)

        worker = threading.Thread(target=work)
        worker.start()
        seen, watcher = [], watch.Watch()
        stream = watcher.stream(
            self.core.list_namespaced_secret, self.namespace, resource_version=version, timeout_seconds=30
        )
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                watcher.stop()
        worker.join()
        self.assertEqual(seen, [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s")])

    def test_a_version_of_long_ago_is_gone(self):
        with self.assertRaises(ApiException) as raised:
            for _ in watch.Watch().stream(
                self.core.list_namespaced_config_map, self.namespace, resource_version="1", timeout_seconds=5
            ):
                pass
            # A server that still has it all is right, too.
            raise ApiException(status=410)
        self.assertEqual(raised.exception.status, 410)

    def deployment(self):
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels={"app": "web"}),
            spec=client.V1PodSpec(
                containers=[
                    client.V1Container(
                        name="web",
                        image="example.invalid/web:1",
                        env=[client.V1EnvVar(name="A", value="1")],
                        resources=client.V1ResourceRequirements(requests={"cpu": "100m"}),
                    )
                ]
            ),
        )
        spec = client.V1DeploymentSpec(
            replicas=0, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
        )
        return client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)

    def test_all_kinds_of_patches(self):
        self.apps.create_namespaced_deployment(self.namespace, self.deployment())

        def patch(body, kind):
            return self.apps.patch_namespaced_deployment("web", self.namespace, body, _content_type=kind)

        env = {"spec": {"template": {"spec": {"containers": [{"name": "web", "env": [{"name": "B", "value": "2"}]}]}}}}
        merged = patch(env, "application/strategic-merge-patch+json")
        names = [entry.name for entry in merged.spec.template.spec.containers[0].env]
        self.assertEqual(sorted(names), ["A", "B"])
        patched = patch([{"op": "replace", "path": "/spec/paused", "value": True}], "application/json-patch+json")
        self.assertTrue(patched.spec.paused)
        merged = patch({"spec": {"paused": None}}, "application/merge-patch+json")
        self.assertIsNone(merged.spec.paused)
        scale = self.apps.read_namespaced_deployment_scale("web", self.namespace)
        # A zero is left out.
        self.assertEqual((scale.spec.replicas, scale.status.selector), (None, "app=web"))

    def test_the_dynamic_client_finds_its_way(self):
        found = dynamic.DynamicClient(self.api)
        maps = found.resources.get(api_version="v1", kind="ConfigMap")
        made = maps.create(
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"k": "1"}},
            namespace=self.namespace,
        )
        self.assertEqual(made.data.k, "1")
        self.assertEqual(maps.get(name="d", namespace=self.namespace).metadata.uid, made.metadata.uid)
        with self.assertRaises(dynamic.exceptions.NotFoundError):
            maps.get(name="none", namespace=self.namespace)
        with self.assertRaises(dynamic.exceptions.ResourceNotFoundError):
            found.resources.get(api_version="v1", kind="Unicorn")
        deployments = found.resources.get(api_version="apps/v1", kind="Deployment")
        self.assertIn("scale", deployments.subresources)

    def test_server_side_apply_shares_and_conflicts(self):
        maps = dynamic.DynamicClient(self.api).resources.get(api_version="v1", kind="ConfigMap")

        def apply(manager, force=False, **data):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": data}
            return maps.server_side_apply(
                body=body, name="s", namespace=self.namespace, field_manager=manager, force_conflicts=force
            )

        apply("one", a="1")
        with self.assertRaises(dynamic.exceptions.ConflictError) as raised:
            apply("two", a="2")
        self.assertIn('conflict with \\"one\\": .data.a', raised.exception.body)
        self.assertEqual(apply("two", force=True, a="2", b="3").data.to_dict(), {"a": "2", "b": "3"})
        # Who no longer asks for a field gives it up.
        self.assertEqual(apply("two", a="2").data.to_dict(), {"a": "2"})

    def test_custom_objects_and_their_definition(self):
        group = f"{self.namespace}.example.com"
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}},
        }
        version = client.V1CustomResourceDefinitionVersion(
            name="v1",
            served=True,
            storage=True,
            schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        )
        names = client.V1CustomResourceDefinitionNames(kind="Box", plural="boxes", singular="box")
        spec = client.V1CustomResourceDefinitionSpec(group=group, names=names, scope="Namespaced", versions=[version])
        definitions = client.ApiextensionsV1Api(self.api)
        name = f"boxes.{group}"
        definitions.create_custom_resource_definition(
            client.V1CustomResourceDefinition(metadata=client.V1ObjectMeta(name=name), spec=spec)
        )
        self.addCleanup(definitions.delete_custom_resource_definition, name)
        for event in watch.Watch().stream(
            definitions.list_custom_resource_definition, field_selector=f"metadata.name={name}", timeout_seconds=30
        ):
            conditions = event["object"].status.conditions if event["object"].status else None
            if any(one.type == "Established" and one.status == "True" for one in conditions or []):
                break
        else:
            self.fail("the definition was never established")
        custom = client.CustomObjectsApi(self.api)
        box = {"apiVersion": f"{group}/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": 2}}
        custom.create_namespaced_custom_object(group, "v1", self.namespace, "boxes", box)
        with self.assertRaises(ApiException) as raised:
            patch = {"spec": {"size": 0}}
            custom.patch_namespaced_custom_object(group, "v1", self.namespace, "boxes", "b", patch)
        self.assertEqual(raised.exception.status, 422)
        listed = custom.list_namespaced_custom_object(group, "v1", self.namespace, "boxes")
        self.assertEqual([item["spec"]["size"] for item in listed["items"]], [2])

    def test_a_service_account_token_works(self):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        self.core.create_namespaced_service_account(self.namespace, body)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.core.create_namespaced_service_account_token("robot", self.namespace, request).status.token
        settings = client.Configuration()
        settings.host = self.api.configuration.host
        settings.ssl_ca_cert = self.api.configuration.ssl_ca_cert
        settings.api_key = {"authorization": f"Bearer {token}"}
        with client.ApiClient(settings) as robot:
            with self.assertRaises(ApiException) as raised:
                client.CoreV1Api(robot).list_namespaced_secret(self.namespace)
            self.assertEqual(raised.exception.status, 403)
            self.assertIn(f"system:serviceaccount:{self.namespace}:robot", raised.exception.body)
            review = client.V1SelfSubjectReview()
            who = client.AuthenticationV1Api(robot).create_self_subject_review(review)
            self.assertEqual(who.status.user_info.username, f"system:serviceaccount:{self.namespace}:robot")


if __name__ == "__main__":
    unittest.main()
