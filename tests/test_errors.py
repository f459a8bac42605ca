"""Others' exceptions in words."""

from pyterrier_debias.core.errors import one_line, shortened, trace

STACK = """JVM exception occurred: org.terrier.X: no such file /data/indexes/my-index/data.properties
org.terrier.X: no such file /data/indexes/my-index/data.properties
\torg.terrier.structures.Index.<init>(Index.java:200)
\tjava.base/java.lang.Integer.parseInt(Integer.java:786)
\t... 3 more"""


class JavaException(Exception):  # noqa: N818 - as pyjnius calls it
    """What pyjnius raises."""

    def __init__(self, message, classname=None, innermessage=None):
        super().__init__(message)
        self.classname, self.innermessage = classname, innermessage


def test_java_is_told_by_its_message_alone():
    told = one_line(JavaException(STACK, "org.terrier.exceptions.NoIndex", "no such file /data/indexes/my-index/data.properties"))
    assert told == "NoIndex: no such file data.properties"
    # As it comes where another exception holds it.
    assert one_line(RuntimeError(STACK)) == "RuntimeError: org.terrier.X: no such file data.properties"
    assert one_line(JavaException("JVM exception occurred", "java.lang.NullPointerException", None)) == "NullPointerException"


def test_of_paths_the_last_part_is_left_unless_they_are_what_is_wrong():
    assert one_line(ValueError("TerrierIndex('/tmp/a/b/index') has none")) == "ValueError: TerrierIndex('index') has none"
    assert one_line(ValueError("see https://example.org/a/b/c or 1/2/3")) == "ValueError: see https://example.org/a/b/c or 1/2/3"
    assert "/tmp/a/b" in one_line(FileNotFoundError(2, "No such file or directory", "/tmp/a/b"))


def test_long_messages_keep_both_ends():
    told = one_line(ValueError("begins here " + "x " * 800 + "and ends there"))
    assert len(told) < 330
    assert told.startswith("ValueError: begins here") and told.endswith("and ends there")
    assert one_line(ValueError("")) == "ValueError"
    assert shortened("a\n b\tc", 5) == "a b c"


def test_a_trace_leaves_javas_stack_out():
    try:
        raise JavaException(STACK)
    except JavaException as error:
        told = trace(error)
    assert "test_errors.py" in told and "JVM exception occurred" in told
    assert ".java:" not in told and "3 more" not in told
