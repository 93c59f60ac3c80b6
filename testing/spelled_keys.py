"""API keys as clients may write them by mistake, in places where they do not belong."""

import string

from hypothesis import strategies as st


@st.composite
def spelled_keys(draw: st.DrawFn) -> tuple[str, str]:
    """The letters and digits of a key's secret, and the key as a client may write it by mistake."""
    secret = draw(st.text(string.ascii_letters + string.digits, min_size=33, max_size=33))
    prefix = draw(st.sampled_from(["pso_live_", "pso_test_"])) * draw(st.integers(1, 2))
    written = []
    for character in prefix + secret:
        if character == "_":
            character = draw(st.sampled_from(["_", "-", "", "%5f", "/", "__", ".\\"]))
        elif draw(st.integers(0, 9)) == 0:
            character += draw(st.sampled_from(["-", "/", "_", ".", "%2F", "'", "=&", "\xe9"]))
        if draw(st.integers(0, 9)) == 0:
            character = "".join(f"%{byte:02X}" for byte in character.encode("latin-1"))
        written.append(character.swapcase() if draw(st.integers(0, 9)) == 0 else character)
    text = "".join(written)
    for _ in range(draw(st.integers(0, 3))):
        text = text.replace("%", "%25")
    return secret.lower(), text
