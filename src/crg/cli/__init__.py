"""The ``crg`` command. No logic lives here: commands read input, call the library and print."""

from __future__ import annotations

import click

import crg
from crg.cli.bench import bench
from crg.cli.compare import compare
from crg.cli.context import context
from crg.cli.datasets import datasets
from crg.cli.demo import demo
from crg.cli.encode import encode
from crg.cli.encoders import encoders, export
from crg.cli.generate import generate
from crg.cli.methods import methods
from crg.cli.predict import predict
from crg.cli.report import report
from crg.cli.rerun import rerun
from crg.cli.run import run
from crg.cli.shared import CommandGroup, load_environment_plugins, plugin_option


@click.group(cls=CommandGroup)
@click.version_option(crg.__version__, prog_name="crg")
@plugin_option
def main() -> None:
    """Test-time adaptation for CLIP-like models, from images or stored features.

    \b
    Example:
      crg demo
      crg predict photos/ --classes "cat,dog,fox" --model ViT-B-16
      crg compare features.npz --methods zero_shot,tda,dpe,crg --orders 5

    A method of your own works everywhere a built-in one does: decorate its class with
    @crg.register and name its file with --plugin (or in the variable CRG_PLUGINS).
    """
    load_environment_plugins()


for command in (
    predict,
    demo,
    encode,
    generate,
    run,
    compare,
    bench,
    report,
    rerun,
    methods,
    encoders,
    export,
    context,
    datasets,
):
    main.add_command(command)
