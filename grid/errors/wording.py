"""How texts for users say a number."""


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "id"), counted(1200, "id")
    ('1 id', '1,200 ids')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"
