"""Examples of commands, for --help and for the reference page; the most common use comes first."""

from collections.abc import Mapping

# A line that begins with # describes the lines below it.
EXAMPLES: Mapping[str, str] = {
    "raysm demo": "raysm demo",
    "raysm similarity": """\
# the 10 most similar other rows of each row, computed on two instances of this machine
raysm similarity vectors.npy --top-k 10 --instances 2 --output out/
# all pairs with a similarity of at least 0.9
raysm similarity vectors.npy --threshold 0.9 --output out/
# the rows of new.parquet compared with those of catalog.parquet
raysm similarity catalog.parquet --top-k 10 --queries new.parquet --id-column sku --output out/
# how long it will take, and what it will cost
raysm similarity vectors.npy --top-k 10 --instances 16 --estimate --instance-type ml.c5.4xlarge""",
    "raysm run": """\
# on the head of three emulated instances; files that the script writes to $SM_MODEL_DIR are copied to out/
raysm run main.py --instances 3 --output out/ -- --greeting Hello
# with input data at $SM_CHANNEL_TRAIN, and with a package
raysm run main.py --input train=data/ --requirement scikit-learn
# on AWS, without waiting for the end
raysm run main.py --on aws --role arn:aws:iam::123456789012:role/jobs --instance-type ml.c5.4xlarge --detach""",
    "raysm train": """\
# as torchrun on two machines; rank 0's model is copied to out/
raysm train main.py --instances 2 --output out/ -- --epochs 10""",
    "raysm sweep": """\
# 50 trials of main.py --lr …; the script reports its loss with raysm.report(loss=…)
raysm sweep main.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min --trials 50 --output out/ -- --epochs 3""",
    "raysm tune": "raysm tune main.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min --parallel 4",
    "raysm submit": """\
# job.json is the output of --dry-run --json of any command that sends a job
raysm submit --request job.json --output out/""",
    "raysm config": "raysm config",
    "raysm jobs": """\
raysm jobs
# with parameters and metrics, the best first
raysm jobs --project digits --params lr,batch --metrics loss:min --sort loss:min""",
    "raysm rm": "raysm rm digits-20261122-101112-0a1b2c3d",
    "raysm logs": "raysm logs -f digits --metrics",
    "raysm result": "raysm result digits --output out/",
    "raysm metrics": "raysm metrics digits --name 'val/*'",
    "raysm debug": "raysm debug digits --on aws",
    "raysm tunnel": """\
# http://127.0.0.1:6006 then shows TensorBoard of the head
raysm tunnel digits 6006 --local 6006""",
    "raysm shell": "raysm shell digits --instance algo-2 -- nvidia-smi",
    "raysm session start": "raysm session start --name work --instances 2 --idle-detached 2h --budget 20",
    "raysm exec": "raysm exec work main.py -- --epochs 3",
    "raysm local up": "raysm local up --scenario bad-day.toml",
    "raysm local clean": "raysm local clean --older-than 12h --dry-run",
    "raysm doctor": """\
# check this machine
raysm doctor
# check an AWS account for one kind of job
raysm doctor --on aws --role arn:aws:iam::123456789012:role/jobs --instance-type ml.g5.12xlarge --instances 4""",
    "raysm grid plan": "raysm grid plan train.py --rows drives.csv --regions us-east-1,eu-west-1 -- --lr {lr}",
    "raysm grid run": """\
raysm grid run train.py --rows drives.csv --budget 500 -- --lr {lr}
# the rows of a query, in the regions of their data
raysm grid run train.py --sql sqlite:///drives.db "SELECT name AS key, uri AS input_data FROM drives" --budget 500""",
    "raysm grid row": "raysm grid row train.py --rows drives.csv --index 0 --wait",
    "raysm grid status": "raysm grid status drives",
    "raysm grid rows": "raysm grid rows drives --state failed",
    "raysm grid report": "raysm grid report drives --html drives.html",
    "raysm grid table": "raysm grid table drives --output predictions.parquet",
    "raysm image": "raysm image --region eu-west-1 --gpu",
    "raysm prices": "raysm prices ml.g5.2xlarge --regions us-east-1,eu-west-1 --refresh",
    "raysm quotas": "raysm quotas ml.g5.2xlarge --on aws --regions us-east-1,eu-west-1",
}
