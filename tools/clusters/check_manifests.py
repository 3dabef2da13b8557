#!/usr/bin/env python3
"""Checks deploy/*.yaml against published schemas, and that bash reads the scripts: tools/clusters/check_manifests.py

Pod templates, Jobs, Deployments and Services against Kubernetes' own (PyPI: kubernetes-validate), the JobSet against the models of Kubeflow's
trainer (PyPI: kubeflow-trainer-api). No package has the schemas of LeaderWorkerSet and MPIJob; their keys and words are
compared with the tables below, which follow leaderworkerset.x-k8s.io/v1 (LeaderWorkerSetSpec) and kubeflow.org/v2beta1
(MPIJobSpec).
"""

import copy
import pathlib
import subprocess
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
VERSION = "1.29"
POD = {"pod": ...}
TABLES = {
    "LeaderWorkerSet": {
        "replicas": int,
        "startupPolicy": {"LeaderCreated", "LeaderReady"},
        "leaderWorkerTemplate": {
            "size": int,
            "restartPolicy": {"RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"},
            "leaderTemplate": POD,
            "workerTemplate": POD,
        },
    },
    "MPIJob": {
        "slotsPerWorker": int,
        "sshAuthMountPath": str,
        "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "runPolicy": {"cleanPodPolicy": {"Running", "None", "All"}, "backoffLimit": int, "ttlSecondsAfterFinished": int,
                      "activeDeadlineSeconds": int, "suspend": bool},
        "mpiReplicaSpecs": {
            role: {"replicas": int, "restartPolicy": {"Never", "OnFailure"}, "template": POD}
            for role in ("Launcher", "Worker")
        },
    },
}
VERSIONS = {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "MPIJob": "kubeflow.org/v2beta1",
            "JobSet": "jobset.x-k8s.io/v1alpha2", "Deployment": "apps/v1", "Service": "v1"}


def check_pod(template, where):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **template.get("metadata", {})},
           "spec": template["spec"]}
    validate(pod, where)


def validate(thing, where):
    try:
        kubernetes_validate.validate(thing, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        sys.exit(f"{where}: {error.message}")


def check_table(value, table, where):
    if table is POD:
        check_pod(value, where)
    elif isinstance(table, set):
        require(value in table, where, f"one of {sorted(table)}", value)
    elif isinstance(table, type):
        require(type(value) is table, where, table.__name__, value)
    else:
        for key, inner in value.items():
            require(key in table, where, f"one of {sorted(table)}", key)
            check_table(inner, table[key], f"{where}.{key}")


def require(holds, where, expected, got):
    if not holds:
        sys.exit(f"{where}: expected {expected}, got {got!r}")


def check_jobset(document, where):
    again = JobsetV1alpha2JobSet.from_dict(copy.deepcopy(document)).to_dict()
    require(again == document, where, "keys that a JobSet has", again)
    for job in document["spec"]["replicatedJobs"]:
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}, where)


def check_document(document, where):
    kind = document["kind"]
    require(document["apiVersion"] == VERSIONS[kind], where, VERSIONS[kind], document["apiVersion"])
    if kind == "JobSet":
        check_jobset(document, where)
    elif kind in TABLES:
        check_table(document["spec"], TABLES[kind], f"{where}: spec")
    else:
        validate(document, where)
    print(f"{where}: {kind} as its schema has it")


def labels_of_pods(document):
    """Of each pod that the document starts."""
    spec = document["spec"]
    group = spec.get("leaderWorkerTemplate", {})
    templates = [spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate")]
    return [template.get("metadata", {}).get("labels", {}) for template in templates if template]


def check_services(documents, where):
    """A Service that finds no pod is right by its schema."""
    pods = [labels for document in documents for labels in labels_of_pods(document)]
    for service in [document for document in documents if document["kind"] == "Service"]:
        wanted = service["spec"]["selector"].items()
        require(sum(wanted <= labels.items() for labels in pods) == 1, where, f"one kind of pods with {dict(wanted)}", pods)


def main():
    for path in sorted(DEPLOY.glob("*.yaml")):
        documents = list(yaml.safe_load_all(path.read_text()))
        for document in documents:
            check_document(document, path.name)
        check_services(documents, path.name)
    for path in sorted([*DEPLOY.glob("*.sh"), *DEPLOY.glob("*.sbatch")]):
        subprocess.run(["bash", "-n", path], check=True)
        print(f"{path.name}: as bash reads it")


if __name__ == "__main__":
    main()
