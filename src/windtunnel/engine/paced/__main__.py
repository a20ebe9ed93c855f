"""`python -m windtunnel.engine.paced [TEXT]`: the paced target as a process of its own.

It prints its address when it listens, and ends on SIGTERM, on SIGINT, or when its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys

from windtunnel.engine.paced.app import PacedApp
from windtunnel.engine.paced.config import PacedConfig, describe_keys, parse_paced
from windtunnel.engine.pacer import Pacer
from windtunnel.engine.server import HttpServer, new_event_loop
from windtunnel.engine.serving import Ending, listens
from windtunnel.errors import EXIT_FAILED, EXIT_OK, ConfigurationError
from windtunnel.readiness import raise_descriptor_limit


def main() -> int:
    """Serve until told to end; returns the exit code."""
    arguments = _parse_arguments()
    text = sys.stdin.readline().strip() if arguments.config == "-" else arguments.config
    try:
        config = parse_paced(text, "the paced target")
        tls = _load_tls(config)
    except ConfigurationError as error:
        print(f"{error}\n{error.advice}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(config, tls, arguments.host, arguments.port))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m windtunnel.engine.paced",
        description="An OpenAI-compatible server that sends made-up tokens at exact instants.",
        epilog=describe_keys(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "config", nargs="?", default="", help="key=value,… (below); - reads it from the first line of standard input"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default: %(default)s)")
    return parser.parse_args()


def _load_tls(config: PacedConfig) -> ssl.SSLContext | None:
    if config.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(*config.tls)
    except OSError as error:
        raise ConfigurationError(
            "tls", f"can't use {':'.join(config.tls)}: {error}", "Give a certificate and its key, both in PEM."
        ) from error
    return context


async def _serve(config: PacedConfig, tls: ssl.SSLContext | None, host: str, port: int) -> int:
    loop = asyncio.get_running_loop()
    server = HttpServer(PacedApp(config, Pacer(loop)), tls=tls)
    ending = Ending(loop, watches_stdin=True)
    if not await listens(server, host, port):
        return EXIT_FAILED
    await ending.told.wait()
    await server.close()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
