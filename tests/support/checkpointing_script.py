"""A training script as people have it: in the manner of PyTorch's ImageNet example, without torch."""

import argparse
import os
import pickle
import time

import class_names

parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="", metavar="PATH")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--pause-at", type=int, default=None)
args = parser.parse_args()

with open("labels/names.txt") as file:
    print("labels:", class_names.parse(file.read()), flush=True)

start = 0
if os.path.isfile(args.resume):
    with open(args.resume, "rb") as file:
        start = pickle.load(file)["epoch"]
    print(f"=> loaded checkpoint '{args.resume}' (epoch {start})", flush=True)
else:
    print(f"=> no checkpoint found at '{args.resume}'", flush=True)

for epoch in range(start, args.epochs):
    if epoch == args.pause_at and not start:
        print("paused", flush=True)
        time.sleep(600)
    with open("checkpoint.pth.tar", "wb") as file:
        pickle.dump({"epoch": epoch + 1}, file)
    print(f"epoch {epoch} done", flush=True)
