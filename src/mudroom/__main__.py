"""`python -m mudroom` is `mudroom`."""

from .cli.main import main

if __name__ == "__main__":
    main()
