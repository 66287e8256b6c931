"""Write the generated parts of the pages again: ``python3 -m tests.reference``."""

from tests.reference.pages import COMMAND, old_pages

if __name__ == "__main__":
    for path, text in old_pages().items():
        path.write_text(text)
        print(f"wrote {path}")
    print(f"{COMMAND}: every page is up to date")
