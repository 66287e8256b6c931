"""Any script runs on the head, and `ray.init()` joins the formed cluster: say hello from every instance.

raysm run examples/hello_cluster.py --instances 3 -- --greeting Hello
"""

import argparse
import os
import platform

import ray


@ray.remote(num_cpus=0)
def hello(greeting):
    labels = ray.get_runtime_context().get_node_labels()
    where = f"{labels['raysm.io/host']} (rank {labels['raysm.io/rank']})"
    return f"{greeting} from {where}, Python {platform.python_version()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--greeting", default="Hello")
    arguments = parser.parse_args()
    ray.init(log_to_driver=False)
    print(f"the head is {os.environ['SM_CURRENT_HOST']}, the hosts are {os.environ['SM_HOSTS']}")
    hosts = sorted(node["Labels"]["raysm.io/host"] for node in ray.nodes() if node["Alive"])
    tasks = [hello.options(label_selector={"raysm.io/host": host}).remote(arguments.greeting) for host in hosts]
    for line in ray.get(tasks):
        print(line)


if __name__ == "__main__":
    main()
