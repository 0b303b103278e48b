"""A trainer whose step has nothing to do with TensorFlow: the loop, callbacks and monitors come along all the same.

A Metropolis sampler walks over a normal distribution; an epoch is 20,000 steps. With `--run-dir DIR --resume auto`, a
walk that was interrupted goes on as if it never had been.
"""

import argparse
import math
import random

import tpk


class Metropolis(tpk.Trainer):
    state_attributes = ("position", "total", "squares", "count")

    def __init__(self, mean, deviation):
        super().__init__()
        self.mean, self.deviation = mean, deviation
        self.position, self.total, self.squares, self.count = 0.0, 0.0, 0.0, 0

    def run_step(self):
        proposal = self.position + random.gauss(0, 2 * self.deviation)
        if math.log(random.random()) < self.energy(self.position) - self.energy(proposal):
            self.position = proposal
        self.total += self.position
        self.squares += self.position**2
        self.count += 1

    def energy(self, position):
        return ((position - self.mean) / self.deviation) ** 2 / 2


class ReportMoments(tpk.Callback):
    def trigger_epoch(self, trainer):
        mean = trainer.total / trainer.count
        trainer.monitors.put_scalar("mean", mean)
        trainer.monitors.put_scalar("deviation", math.sqrt(trainer.squares / trainer.count - mean**2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="where the run keeps its files (default: nowhere)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    parser.add_argument("--max-epoch", type=int, default=3, help="number of the last epoch (default: %(default)s)")
    args = parser.parse_args()

    random.seed(0)
    Metropolis(mean=3.0, deviation=0.5).train(
        callbacks=[ReportMoments(), "ProgressBar", *(["ModelSaver"] if args.run_dir else [])],
        monitors=["ScalarPrinter"],
        steps_per_epoch=20_000,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
    )
