"""The one exception for mistakes of the user."""


class UserError(Exception):
    """Something in the user's input is wrong.

    The message is one line that says which file or key, what is wrong and what to do.
    The command line prints it and exits with code 2; nothing else is ever shown for it.

    >>> raise UserError("data.csv: no column 'label'; add it to the header")
    Traceback (most recent call last):
    ...
    protopyramid.errors.UserError: data.csv: no column 'label'; add it to the header
    """
