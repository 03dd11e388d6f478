"""`python -m hlosharding` is the `hlosharding` command."""

from hlosharding.cli import command

if __name__ == "__main__":
    command()
