"""The one exception for mistakes of the user, and the one way to show what users wrote."""


def printable(text: str) -> str:
    """Text on one line, safe to print: line breaks, control characters and odd bytes are escaped.

    >>> printable("a\\nb\\x1b[31m"), printable("Größe")
    ('a\\\\nb\\\\x1b[31m', 'Größe')
    """
    plain = text.encode("utf-8", "backslashreplace").decode()
    if plain.isprintable():
        return plain
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in plain)


class UserError(Exception):
    """Something in the user's input is wrong.

    The message is one line that says which file or key, what is wrong and what to do; control characters
    in it, which can only be of names, are escaped. The command line prints it and exits with code 2;
    nothing else is ever shown for it.

    >>> raise UserError("data.csv: no column 'label'; add it to the header")
    Traceback (most recent call last):
    ...
    protopyramid.errors.UserError: data.csv: no column 'label'; add it to the header
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
