"""Ways to start a job on the nodes. Each is real: SLURM, Open MPI over ssh, torchrun, and weft launch over ssh."""

import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

SLURM_CONF = """ClusterName=weft
SlurmctldHost=head({head})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdTimeout=10
KillWait=3
MinJobAge=300
ReturnToService=2
JobRequeue=1
NodeName=node0 NodeAddr={node0} CPUs=2 State=UNKNOWN
NodeName=node1 NodeAddr={node1} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=node0,node1 Default=YES MaxTime=INFINITE State=UP
"""

SSHD_CONF = """Port 22
HostKey {folder}/ssh_key
AuthorizedKeysFile {folder}/ssh_key.pub
StrictModes no
UsePAM no
PidFile none
"""


class Way:
    """How a job comes to the nodes; it runs on `hosts` with the key of `folder`."""

    name = ""
    #: Seconds for which a host that was killed stays away: from, to.
    away = (2, 8)

    def __init__(self, hosts, weft, config):
        self.hosts, self.weft, self.config = hosts, weft, config
        self.folder = hosts.folder
        self.job = None
        self.train = [weft, "train", config, "--resume=auto"]

    def set_up(self):
        for node in ("node0", "node1"):
            self.boot(node)

    def boot(self, node):
        """Starts what a node runs when it comes up."""

    def begin(self):
        raise NotImplementedError

    def status(self):
        """Of the job: None while it goes on."""
        return self.job.poll()

    def tear_down(self):
        for name in ("head", "node0", "node1"):
            self.hosts.kill_all(name)


class ByLaunch(Way):
    name = "weft launch --hosts"

    def set_up(self):
        key = self.folder / "ssh_key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            (self.folder / "sshd.conf").write_text(SSHD_CONF.format(folder=self.folder))
            options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"
            shell = self.folder / "ssh"
            shell.write_text(f'#!/bin/sh\nexec ssh -o ConnectTimeout=5 -i {key} {options} "$@"\n')
            shell.chmod(0o700)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        super().set_up()

    def boot(self, node):
        self.hosts.start(node, ["/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd.conf"], f"sshd.{node}.log")

    def begin(self):
        command = [DEPLOY / "hosts.sh", "node0,node1", *self.train]
        self.job = self.hosts.start("head", command, "job.log", WEFT_SSH=str(self.folder / "ssh"), PATH=self.path())

    def path(self):
        return f"{pathlib.Path(self.weft).parent}:{os.environ['PATH']}"


class ByMpirun(ByLaunch):
    name = "mpirun"

    def begin(self):
        # Open MPI refuses root otherwise; its daemons notice a host that is gone by themselves only after minutes.
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        mca = {"OMPI_MCA_plm_rsh_agent": str(self.folder / "ssh"), "OMPI_MCA_btl_tcp_if_include": "10.214.0.0/24",
               "OMPI_MCA_oob_tcp_if_include": "10.214.0.0/24"}
        command = [DEPLOY / "mpirun.sh", "2", "node0:1,node1:1", *self.train]
        self.job = self.hosts.start("head", command, "job.log", **allowed, **mca, PATH=self.path())


class ByTorchrun(Way):
    name = "torchrun --max-restarts"

    def set_up(self):
        (self.folder / "job.key").write_text("0123456789abcdef" * 4 + "\n")
        (self.folder / "job.key").chmod(0o600)
        self.agents = {}

    def boot(self, node):
        variables = {"NODES": "2", "NODE": node[-1], "FIRST": "node0",
                     "WEFT_JOB_KEY_FILE": str(self.folder / "job.key"), "PATH": self.path()}
        self.agents[node] = self.hosts.start(node, [DEPLOY / "torchrun.sh", self.config], f"{node}.log", **variables)

    def path(self):
        shim = self.folder / "bin"
        shim.mkdir(exist_ok=True)
        (shim / "torchrun").write_text('#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n')
        (shim / "torchrun").chmod(0o755)
        return f"{shim}:{pathlib.Path(self.weft).parent}:{os.environ['PATH']}"

    def begin(self):
        for node in ("node0", "node1"):
            self.boot(node)

    def status(self):
        ends = [agent.poll() for agent in self.agents.values()]
        return None if None in ends else max(ends, key=abs)


class BySrun(Way):
    name = "srun"
    # Longer than SlurmdTimeout. One that is back sooner is not missed by the controller of 22.05, and srun may wait for
    # tasks that are gone; hosts take longer to come up.
    away = (13, 18)
    munged = None

    def set_up(self):
        conf = SLURM_CONF.format(folder=self.folder, **self.hosts.addresses)
        (self.folder / "slurm.conf").write_text(conf)
        # None are used: processes are known by their sessions.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "state").mkdir(exist_ok=True)
        os.environ["SLURM_CONF"] = str(self.folder / "slurm.conf")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        where = [f"--{what}={self.folder}/munge.{what.split('-')[0]}" for what in ("pid-file", "log-file", "seed-file")]
        self.munged = subprocess.Popen(["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                                        f"--key-file={key}", *where], stderr=subprocess.DEVNULL)
        time.sleep(1)
        self.hosts.start("head", ["slurmctld", "-D"], "slurmctld.out")
        self.seen = set()
        for node in ("node0", "node1"):
            (self.folder / f"spool.{node}").mkdir(exist_ok=True)
        super().set_up()
        self.wait_for_nodes()

    def boot(self, node):
        # A host that has come up again tells so by the time at which its kernel began; here that is -b.
        again = ["-b"] if node in self.seen else []
        self.seen.add(node)
        self.hosts.start(node, ["slurmd", "-D", *again, "-N", node], f"{node}.out")

    def ask(self, *words):
        return subprocess.run(self.hosts.command("head", words), check=False, capture_output=True, text=True).stdout

    def wait_for_nodes(self):
        for _ in range(60):
            if self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"]:
                return
            time.sleep(1)
        raise RuntimeError("SLURM's nodes did not come up: " + self.ask("sinfo"))

    def begin(self):
        command = [DEPLOY / "again.sh", "srun", "-N", "2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *self.train]
        self.job = self.hosts.start("head", command, "job.log", WEFT_JOB_KEY="0123456789abcdef" * 4)

    def tear_down(self):
        super().tear_down()
        if self.munged:
            self.munged.terminate()
            self.munged.wait()


class BySbatch(BySrun):
    name = "sbatch with requeue"

    def begin(self):
        path = f"{pathlib.Path(self.weft).parent}:{os.environ['PATH']}"
        words = ["env", f"PATH={path}", "sbatch", "--parsable", f"--output={self.folder}/job.log",
                 f"--chdir={self.folder}", DEPLOY / "slurm.sbatch", self.config]
        self.is_queued = True
        self.number = self.ask(*words).strip()
        if not self.number:
            raise RuntimeError("sbatch gave no job number")

    def status(self):
        state = self.ask("squeue", "-h", "-t", "all", "-o", "%T", "-j", self.number).strip()
        # A job that is queued again waits two minutes for the rest of it to go from its nodes. Here ten seconds do.
        if state == "PENDING" and not self.is_queued:
            self.ask("scontrol", "update", f"JobId={self.number}", "StartTime=now+10")
        self.is_queued = state == "PENDING"
        return {"COMPLETED": 0, "FAILED": 1, "CANCELLED": 1, "": 1}.get(state)


WAYS = {way.__name__: way for way in (BySrun, BySbatch, ByMpirun, ByTorchrun, ByLaunch)}
