"""Train a classifier on images in DIR/train/CLASS and DIR/val/CLASS, on one machine or several: plain PyTorch.

It takes the arguments of PyTorch's ImageNet example: DIR -a ARCH --epochs --batch-size --lr --resume
--multiprocessing-distributed --world-size --rank --dist-url. Nothing in it knows of SageMaker, Ray or raysm.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import distributed, multiprocessing, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIDE = 16
ARCHITECTURES = {
    "convnet": lambda classes: nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * SIDE**2 // 16, classes),
    ),
    "mlp": lambda classes: nn.Sequential(
        nn.Flatten(), nn.Linear(3 * SIDE**2, 128), nn.ReLU(), nn.Linear(128, classes)
    ),
}  # fmt: skip


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=Path, help="folder with train/CLASS/IMAGE and val/CLASS/IMAGE")
    parser.add_argument("-a", "--arch", choices=ARCHITECTURES, default="convnet")
    parser.add_argument("--epochs", type=int, default=3, help="epochs in all, also those before --resume")
    parser.add_argument("-b", "--batch-size", type=int, default=60, help="of all processes of this machine together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--resume", type=Path, help="go on from this checkpoint, if it is there")
    parser.add_argument("--multiprocessing-distributed", action="store_true", help="one process for each GPU")
    parser.add_argument("--world-size", type=int, default=1, help="number of machines")
    parser.add_argument("--rank", type=int, default=0, help="number of this machine")
    parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456", help="where the first machine listens")
    return parser.parse_args()


def read_images(folder):
    """Read all images into memory, as floats [N, 3, SIDE, SIDE] in -1 to 1 with the numbers of their classes."""
    files = sorted(folder.glob("*/*"))
    classes = sorted({path.parent.name for path in files})
    pixels = [np.array(Image.open(path).convert("RGB").resize((SIDE, SIDE)), np.float32) for path in files]
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 127.5 - 1
    return TensorDataset(images, torch.tensor([classes.index(path.parent.name) for path in files])), len(classes)


def main():
    args = parse()
    processes = max(1, torch.cuda.device_count()) if args.multiprocessing_distributed else 1
    if processes > 1:
        multiprocessing.spawn(work, (processes, args), nprocs=processes)
    else:
        work(0, 1, args)


def work(local_rank, processes, args):
    """Train in one process of this machine."""
    rank = args.rank * processes + local_rank
    world_size = args.world_size * processes
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if args.multiprocessing_distributed:
        backend = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, init_method=args.dist_url, world_size=world_size, rank=rank)
    images, classes = read_images(args.dir / "train")
    validation, _ = read_images(args.dir / "val")
    torch.manual_seed(0)
    model = ARCHITECTURES[args.arch](classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first = 0
    best = 0.0
    if args.resume and args.resume.is_file():
        found = torch.load(args.resume, map_location=device)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["epoch"]
        best = found["best"]
        print(f"loaded {args.resume}, which has {first} epochs", flush=True)
    parallel = nn.parallel.DistributedDataParallel(model) if args.multiprocessing_distributed else model
    sampler = DistributedSampler(images, world_size, rank)
    loader = DataLoader(images, args.batch_size // processes, sampler=sampler)
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        train(loader, parallel, optimizer, epoch, device, rank)
        if rank == 0:
            accuracy = validate(validation, model, device)
            best = max(best, accuracy)
            state = {"epoch": epoch + 1, "best": best, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, "checkpoint.pth.tar.new")
            Path("checkpoint.pth.tar.new").replace("checkpoint.pth.tar")
    if args.multiprocessing_distributed:
        distributed.destroy_process_group()


def train(loader, model, optimizer, epoch, device, rank):
    model.train()
    start = time.monotonic()
    for number, (images, classes) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(images.to(device)), classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number == len(loader):
            seconds = time.monotonic() - start
            print(f"Epoch: [{epoch}][{number}/{len(loader)}] Time {seconds:.3f} Loss {loss.item():.4e}", flush=True)


@torch.no_grad()
def validate(images, model, device):
    """Print and return the share of images whose most likely class is the right one, in percent."""
    model.eval()
    right = sum(
        (model(batch.to(device)).argmax(1).cpu() == classes).sum().item() for batch, classes in DataLoader(images, 256)
    )
    accuracy = 100 * right / len(images)
    print(f" * Acc@1 {accuracy:.3f}", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
