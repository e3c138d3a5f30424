"""``python -m crg`` does what ``crg`` does."""

from crg.cli import main

if __name__ == "__main__":
    main(prog_name="crg")
