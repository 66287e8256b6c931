"""Scripts as AWS has them in its samples, in our own words: nothing in them knows of raysm."""

# As the scripts of AWS's samples for Ray on SageMaker are: their launcher has called ray.init(),
# and its README says "Ray is already initialized"; paths are written out.
# https://github.com/aws-samples/sample-ray-on-amazon-sagemaker-training-jobs
SAMPLE = """
import os
import ray

@ray.remote
def clean(path):
    with open(path) as file:
        return sum(1 for line in file if line.strip())

if __name__ == "__main__":
    print("SAW", int(ray.cluster_resources()["node:__internal_head__"]), len(ray.nodes()), flush=True)
    folder = "/opt/ml/input/data/processing"
    counts = ray.get([clean.remote(os.path.join(folder, name)) for name in sorted(os.listdir(folder))])
    with open("/opt/ml/model/counts.txt", "w") as file:
        file.write(repr(counts))
"""
