DEFAULT_WIDTH = 80


def wrap(text, width=DEFAULT_WIDTH):
    """Break `text` into lines of at most `width` characters, between words where possible."""
    lines = []
    line = ""
    for word in text.split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines


def indent(lines, prefix="  "):
    return [prefix + line for line in lines]
