#!/usr/bin/env python3
"""Checks what containers and Kubernetes are told: manifests.py, with TESSERA_BIN naming the binary.

Every overlay is built and held against the schema of Kubernetes, the compose file against its own; selectors, ports and probes
must name what exists, and the binary must understand every command that a container starts it with.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).resolve().parent
OVERLAYS = sorted(path for path in (HERE / "kubernetes" / "overlays").iterdir())
# Not kinds of Kubernetes itself: what they name is checked here, their schema is not.
OPERATOR = "monitoring.coreos.com/v1"
PAGES = {"/livez", "/readyz", "/metrics"}

problems = []
checked = 0


def expect(holds, problem):
    global checked
    checked += 1
    if not holds:
        problems.append(problem)


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def understood(where, arguments):
    """Whether the binary knows every option: it reads them all before it shows the help of the command."""
    values = [str(word).replace("$(HOST_IP)", "10.0.0.1").replace("$(POD_IP)", "10.0.0.1") for word in arguments]
    done = run(os.environ["TESSERA_BIN"], *values, "--help")
    expect(done.returncode == 0, f"{where}: the binary refuses {values}: {done.stderr}")


def templates(documents):
    """Every pod that is made, by what makes it."""
    for document in documents:
        if template := (document.get("spec") or {}).get("template"):
            yield document, template


def matching(documents, labels):
    return [
        template for _, template in templates(documents) if labels.items() <= template["metadata"]["labels"].items()
    ]


def ports_of(pods):
    return {
        port[key]
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        for key in ("name", "containerPort")
    }


def check_pods(where, documents):
    for document, template in templates(documents):
        spec = template["spec"]
        for container in spec["containers"]:
            name = f"{where}: {document['kind']} {document['metadata']['name']}"
            if "command" not in container:
                understood(name, container["args"])
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if got := container.get(probe):
                    expect(got["httpGet"]["path"] in PAGES, f"{name}: {probe} asks for a page that there is not")
                    expect(
                        got["httpGet"]["port"] in ports_of([template]),
                        f"{name}: {probe} asks at a port that there is not",
                    )
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
            for mount in container.get("volumeMounts", []):
                expect(mount["name"] in volumes, f"{name}: no volume {mount['name']}")
            if document["metadata"]["name"] != "agent":
                safe = container["securityContext"]
                expect(
                    safe["capabilities"]["drop"] == ["ALL"]
                    and not safe["allowPrivilegeEscalation"]
                    and spec["securityContext"]["runAsNonRoot"],
                    f"{name}: has more rights than it needs",
                )


def check_references(where, documents):
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    for document in documents:
        name, spec = f"{where}: {document['kind']} {document['metadata']['name']}", document.get("spec") or {}
        if document["kind"] == "Service":
            pods = matching(documents, spec["selector"])
            expect(pods, f"{name}: selects nothing")
            for port in spec["ports"]:
                expect(port["targetPort"] in ports_of(pods), f"{name}: no pod has the port {port['targetPort']}")
        if document["kind"] == "StatefulSet":
            service = services.get(spec["serviceName"])
            expect(
                service and service["spec"]["clusterIP"] == "None",
                f"{name}: {spec['serviceName']} is no headless service",
            )
        if document["kind"] == "PodDisruptionBudget":
            expect(matching(documents, spec["selector"]["matchLabels"]), f"{name}: selects nothing")
        if document["kind"] == "NetworkPolicy":
            pods = matching(documents, spec["podSelector"]["matchLabels"])
            expect(pods, f"{name}: selects nothing")
            for rule in spec["ingress"]:
                expect(
                    {port["port"] for port in rule["ports"]} <= ports_of(pods),
                    f"{name}: lets in to a port that there is not",
                )
        if document["kind"] == "ServiceMonitor":
            found = [
                s
                for s in services.values()
                if spec["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
            ]
            ports = {port["name"] for service in found for port in service["spec"]["ports"]}
            expect(
                spec["endpoints"] and {e["port"] for e in spec["endpoints"]} <= ports,
                f"{name}: no such port of a service",
            )
        if document["kind"] == "PodMonitor":
            pods = matching(documents, spec["selector"]["matchLabels"])
            wanted = {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]}
            expect(wanted and wanted <= ports_of(pods), f"{name}: no such port of a pod")


def check_overlay(folder):
    built = run("kubectl", "kustomize", str(folder))
    expect(built.returncode == 0, f"{folder.name}: {built.stderr}")
    documents = [document for document in yaml.safe_load_all(built.stdout) if document]
    own = [document for document in documents if document["apiVersion"] != OPERATOR]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(own, file)
        file.flush()
        valid = run("kubernetes-validate", "--strict", "-k", "1.32", file.name)
    expect(
        valid.returncode == 0 and "WARN" not in valid.stdout + valid.stderr,
        f"{folder.name}: {valid.stdout}{valid.stderr}",
    )
    check_pods(folder.name, documents)
    check_references(folder.name, documents)


def check_compose():
    file = HERE / "container" / "compose.yaml"
    valid = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(file))
    expect(valid.returncode == 0, f"compose: {valid.stdout}{valid.stderr}")
    services = yaml.safe_load(file.read_text())["services"]
    for name, service in services.items():
        if "entrypoint" not in service:
            understood(f"compose: {name}", service["command"])
    stages = [
        line.split()[-1]
        for line in (HERE / "container" / "Containerfile").read_text().splitlines()
        if line.startswith("FROM")
    ]
    for name, service in services.items():
        expect(service["build"]["target"] in stages, f"compose: {name}: the Containerfile has no such stage")
    for line in (HERE / "container" / "Containerfile").read_text().splitlines():
        if line.startswith("CMD "):
            understood("Containerfile", yaml.safe_load(line.removeprefix("CMD ")))


def main():
    for folder in OVERLAYS:
        check_overlay(folder)
    check_compose()
    for problem in problems:
        print(f"manifests: {problem.strip()}", file=sys.stderr)
    print(f"manifests: {checked} checks, {len(problems)} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
