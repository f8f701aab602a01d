"""`ablate ui`: serve MLflow's pages and the reports of an output folder on the loopback address."""

import argparse
import os
import shlex
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from ablate.cli.options import add_out, add_sweep_name, add_tracking, locate_ledger, parse_positive
from ablate.tracking.store import Store, build_client_uri, find_sqlite_file
from reports.store import silence_mlflow
from trainables.words.environment import (
    PYTHON,
    TRACKING,
    add_import_paths,
    build_public_environment,
)
from trainables.words.errors import ConfigError
from trainables.words.secrets import SERVED, find_server_address
from trainables.words.terminal import print_text

HOST = "127.0.0.1"
# What a browser on this machine calls it, with any port (of a tunnel). A web page could let a name
# of its own, such as 192.168.evil.com, lead here, which MLflow takes for an address at home.
NAMES = ("localhost", HOST, "::1", "[::1]")
FOLDER = "ABLATE_REPORTS"  # variable with the folder of the reports, for `build_app`


def add_ui(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    add_tracking(command)
    add_out(command)
    command.add_argument(
        "--port",
        type=parse_positive,
        default=5000,
        metavar="N",
        help="The port on 127.0.0.1 (default: 5000).",
    )
    command.set_defaults(run=run_ui)


def run_ui(args: argparse.Namespace) -> int:
    """Print the addresses of a sweep's report and of MLflow, and become MLflow's server."""
    from ablate.ledger.queries import find_sweep
    from ablate.ledger.records import Records
    from reports.compile import locate_report

    ledger = locate_ledger(args.out)
    with Records(ledger) as records:
        sweep = records.get_sweep(find_sweep(records, args.sweep, "SWEEP"))
    store = Store(ledger.parent, args.tracking_uri)
    store.check_usable(writes=False)
    report = locate_report(ledger.parent.resolve() / "reports", sweep["name"], sweep["sweep_id"])
    if server := find_server_address(store.uri):
        raise ConfigError(
            "--tracking-uri",
            f"{server} has MLflow's pages already",
            f"Open them there, and {report}/report.html",
        )
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, args.port))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                "--port",
                f"{args.port} cannot be opened ({error})",
                "Give another port, such as 5001",
            ) from None
    page, site = f"{SERVED}{report.name}/report.html", f"http://{HOST}:{args.port}"
    print_text(f"report: {site}{page}\nMLflow: {site}/", flush=True)
    silence_mlflow()
    uri = build_client_uri(store.uri)  # in the environment, because it may have a password
    # a store in a file needs no passwords of databases and storages
    needed = TRACKING if find_sqlite_file(uri) is None else ()
    variables = add_import_paths(build_public_environment(keep=needed))
    variables |= {"MLFLOW_BACKEND_STORE_URI": uri, FOLDER: str(report.parent)}
    # MLflow's processes for jobs serve no page that sweeps have, and outlive a killed server
    variables["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    words = f"mlflow ui --host {HOST} --port {args.port} --workers 1 --app-name ablate".split()
    # MLflow's own process would import from the working folder first
    folder = shlex.quote(str(Path(__file__).resolve().parents[2]))
    command = [*PYTHON, *words, "--uvicorn-opts", f"--app-dir {folder}"]
    os.execve(sys.executable, command, {**variables, "PYTHONSAFEPATH": "1"})


def build_app() -> Any:
    """Return MLflow's web application with the reports below `/reports/`, for `NAMES` alone."""
    from mlflow.server.fastapi_app import app
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    files = StaticFiles(directory=os.environ[FOLDER], check_dir=False)
    app.router.routes.insert(0, Mount(SERVED.rstrip("/"), files))  # before MLflow's own
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=NAMES, www_redirect=False)
    return app
