"""``ckpt`` and ``python -m ckpt_tools``: sees to Ctrl-C first, and loads the program then."""

from __future__ import annotations

from ckpt_tools.cli import signals


def main() -> None:
    """Run the command line. Never returns."""
    signals.end_at_once()
    from ckpt_tools.cli.app import main

    main()


if __name__ == "__main__":
    main()
