"""Before the walk: ops in the one form that it takes, and in the form that moves least."""

from hlosharding.partitioner.plain_forms.forms import in_plain_forms

__all__ = ["in_plain_forms"]
