"""`python -m fallow.cli` is `fallow`."""

from fallow.cli.entry import main

if __name__ == "__main__":
    main()
