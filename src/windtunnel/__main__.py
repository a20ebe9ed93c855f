"""`python -m windtunnel` is the `windtunnel` command."""

from windtunnel.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
