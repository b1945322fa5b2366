"""`python -m trivet` and the `trivet` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from trivet.cli.app import main as run_cli

    run_cli()


if __name__ == "__main__":
    main()
