"""Entry point of `python -m mudroom`."""

from ._cli.main import main

if __name__ == "__main__":
    main()
