from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st
from tpk_distributed import Cluster, as_cluster
from tpk_distributed.slurm import expand_hostlist

from tpk.errors import ConfigError

KUBEFLOW = {
    "cluster": {"chief": ["c:1"], "worker": ["a:1", "b:1"], "ps": ["p:1", "q:1"]},
    "task": {"type": "worker", "index": 0},
    "environment": "cloud",
}


def tf_config(cluster, kind="worker", index=0):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(("kind", "index", "rank"), [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_a_chief_of_its_own_is_worker_0(kind, index, rank):
    cluster = Cluster.find(tf_config(KUBEFLOW["cluster"], kind, index))
    assert (cluster.rank, cluster.world_size) == (rank, 3)
    assert cluster.workers == ("c:1", "a:1", "b:1")
    assert cluster.address == cluster.workers[rank]
    assert cluster.device == f"/job:worker/replica:0/task:{rank}"


def test_without_a_chief_worker_0_is_it():
    cluster = Cluster.find(tf_config({"worker": ["a:10", "b:20"]}, index="1"))
    assert (cluster.rank, cluster.world_size, cluster.port) == (1, 2, 20)
    assert cluster.jobs == {"worker": ("a:10", "b:20")}


def test_a_parameter_server_has_no_rank():
    cluster = Cluster.find(tf_config(KUBEFLOW["cluster"], "ps", 1))
    assert (cluster.job, cluster.index, cluster.address) == ("ps", 1, "q:1")
    with pytest.raises(ConfigError, match=r"parameter server 1 \(q:1\) is not a worker"):
        _ = cluster.rank


def test_it_can_be_given_in_any_form():
    given = Cluster(["c:1", "a:1", "b:1"], ["p:1", "q:1"], index=1)
    assert as_cluster(given) is given
    assert as_cluster(KUBEFLOW) == given
    with pytest.raises(ConfigError, match=r"cluster=7: expected a Cluster"):
        as_cluster(7)


BROKEN = {
    "not valid JSON": {"TF_CONFIG": "{"},
    "it is [1]; expected an object": {"TF_CONFIG": "[1]"},
    "'cluster' is missing": {"TF_CONFIG": '{"task": {"type": "worker", "index": 0}}'},
    "'cluster' is {}": tf_config({}),
    "'task' is missing": {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
    "expected such as {'type': 'worker', 'index': 0}": {
        "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}'
    },
    "this process is worker 2, but the cluster has 2 of them": tf_config({"worker": ["a:1", "b:1"]}, index=2),
    "this process is worker -1": tf_config({"worker": ["a:1"]}, index=-1),
    "index of 'task' is 'x'": tf_config({"worker": ["a:1"]}, index="x"),
    "this process is chief 0, but": tf_config({"worker": ["a:1"]}, "chief"),
    "'evaluator', which takes no part": tf_config({"worker": ["a:1"]}, "evaluator"),
    "jobs 'wroker'": tf_config({"wroker": ["a:1"]}),
    "in the job 'worker': 'a:1': expected a list": tf_config({"worker": "a:1"}),
    "'a' is not the address": tf_config({"worker": ["a"]}),
    "'a:70000' is not the address": tf_config({"worker": ["a:70000"]}),
    "1 is not the address": tf_config({"worker": [1]}),
    "a:1: each process of a cluster needs a different address": tf_config({"worker": ["a:1", "a:1"]}),
    "localhost:2 is an address that only its own host can reach": tf_config({"worker": ["a:1", "localhost:2"]}),
    "127.0.0.1:2 is an address": tf_config({"worker": ["a:1"], "ps": ["127.0.0.1:2"]}),
    "one chief, not 2": tf_config({"chief": ["a:1", "b:1"], "worker": ["c:1"]}),
    "at least one worker": tf_config({"ps": ["a:1"]}, "ps"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_broken_in_tf_config_is_named(message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Cluster.find(BROKEN[message])
    assert "TF_CONFIG is" in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": " "}])
def test_without_a_cluster_all_ways_to_say_are_named(environ):
    with pytest.raises(ConfigError, match=r"(?s)tpk launch -n 2.*TF_CONFIG.*srun.*tpk_distributed\.Cluster"):
        Cluster.find(environ)


def test_there_is_no_process_of_an_unknown_job():
    with pytest.raises(ConfigError, match="not 'evaluator'"):
        Cluster(["a:1"], job="evaluator")
    with pytest.raises(ConfigError, match="does not have ps 0"):
        Cluster(["a:1"], job="ps")


SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NODELIST": "node[09-10],gpu1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}


def hosts_of(cluster):
    return [address.rpartition(":")[0] for address in cluster.workers]


def test_slurm_tells_the_cluster():
    cluster = Cluster.find({**SLURM, "SLURMD_NODENAME": "node10"})
    assert hosts_of(cluster) == ["node09", "node09", "node10", "node10", "gpu1"]
    assert len(set(cluster.workers)) == 5
    assert cluster.rank == 2
    ports = {int(address.rpartition(":")[2]) for address in cluster.workers}
    assert max(ports) - min(ports) == 1 and min(ports) > 1024 and max(ports) < 32768
    assert ports.isdisjoint(
        int(address.rpartition(":")[2]) for address in Cluster.find({**SLURM, "SLURM_JOB_ID": "4712"}).workers
    )


def ports_of(**environ):
    return [int(address.rpartition(":")[2]) for address in Cluster.find({**SLURM, **environ}).workers]


def test_slurm_steps_have_ports_of_their_own():
    jobs = [{"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)} for job in range(4711, 4731) for step in range(8)]
    # As many tasks of one host as a step has ports.
    tasks = {"SLURM_STEP_NODELIST": "gpu1", "SLURM_STEP_TASKS_PER_NODE": "64"}
    every = [port for job in jobs for port in ports_of(**tasks, **job)]
    assert len(set(every)) == len(every)
    assert min(every) > 1024 and max(every) < 32768


def test_ports_that_slurm_has_reserved_are_used():
    assert ports_of(SLURM_STEP_RESV_PORTS="12001,12005-12006") == [12001, 12005, 12001, 12005, 12001]
    assert 12001 not in ports_of(SLURM_STEP_RESV_PORTS="12001"), "too few"


def test_the_user_may_set_the_first_port():
    assert ports_of(TPK_FIRST_PORT="7000") == [7000, 7001, 7000, 7001, 7000]


@pytest.mark.parametrize("distribution", ["plane", "arbitrary"])
@pytest.mark.parametrize("rank", range(5))
def test_no_rank_takes_a_distribution_that_slurm_does_not_describe(distribution, rank):
    with pytest.raises(ConfigError, match=f"SLURM_DISTRIBUTION is '{distribution}'"):
        Cluster.find({**SLURM, "SLURM_PROCID": str(rank), "SLURM_DISTRIBUTION": distribution})


def test_slurm_may_deal_tasks_out():
    cluster = Cluster.find({**SLURM, "SLURM_DISTRIBUTION": "cyclic", "SLURMD_NODENAME": "gpu1"})
    assert hosts_of(cluster) == ["node09", "node10", "gpu1", "node09", "node10"]


def test_tf_config_counts_more_than_slurm():
    assert Cluster.find({**SLURM, **tf_config({"worker": ["a:1"]})}).workers == ("a:1",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_PROCID": "5"}, "SLURM_PROCID is 5, but the step has 5 tasks"),
        ({"SLURM_PROCID": ""}, "SLURM_PROCID is ''; expected a number"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "has 3 hosts, but SLURM_STEP_TASKS_PER_NODE has 2"),
        ({"SLURM_STEP_NODELIST": "node[1-"}, "SLURM_STEP_NODELIST is 'node[1-'; expected a list such as"),
        ({"SLURM_STEP_NODELIST": "node[a-b]"}, "SLURM_STEP_NODELIST has 'a-b', which is not a list of numbers"),
        ({"SLURM_STEP_TASKS_PER_NODE": "two"}, "SLURM_STEP_TASKS_PER_NODE is 'two'"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "SLURM_STEP_TASKS_PER_NODE is ''"),
        ({"SLURM_STEP_RESV_PORTS": "a"}, "SLURM_STEP_RESV_PORTS has 'a'"),
        ({"TPK_FIRST_PORT": "a"}, "TPK_FIRST_PORT is 'a'; expected a number"),
        ({"SLURMD_NODENAME": "gpu1"}, "runs rank 2 on gpu1, but node10 was expected"),
    ],
)
def test_what_contradicts_itself_in_slurm_is_named(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Cluster.find({**SLURM, **changes})


def test_a_slurm_job_without_srun_is_told_so():
    with pytest.raises(ConfigError, match="not started by srun"):
        Cluster.find({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"})


@given(
    st.lists(
        st.tuples(
            st.text("abc", min_size=1, max_size=3),
            st.integers(0, 20),
            st.integers(0, 5),
            st.integers(1, 3),
            st.sampled_from(["", "-ib"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_hostlist_is_expanded_in_its_order(groups):
    parts = [f"{name}[{low:0{width}}-{low + more:0{width}},x7]{end}" for name, low, more, width, end in groups]
    expected = [
        f"{name}{number}{end}"
        for name, low, more, width, end in groups
        for number in [*(f"{each:0{width}}" for each in range(low, low + more + 1)), "7"]
    ]
    assert expand_hostlist(",".join(parts).replace("x7", "7")) == expected


def test_a_host_may_have_several_brackets():
    assert expand_hostlist("r[1-2]n[3,5]x,login") == ["r1n3x", "r1n5x", "r2n3x", "r2n5x", "login"]
