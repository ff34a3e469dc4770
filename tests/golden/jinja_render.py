# SPDX-License-Identifier: Apache-2.0
"""What the reference makes of a template: Jinja in the environment of transformers, at a fixed time."""
import datetime

FIXED_NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


def render(source, variables):
    from transformers.utils.chat_template_utils import _cached_compile_jinja_template
    import jinja2
    try:
        t = _cached_compile_jinja_template(source)
        t.globals["strftime_now"] = lambda fmt: FIXED_NOW.strftime(fmt)
        return {"expected": t.render(**variables)}
    except Exception as e:
        kind = type(e).__name__
        group = ("syntax" if isinstance(e, (jinja2.TemplateSyntaxError, SyntaxError)) else
                 "undefined" if isinstance(e, jinja2.UndefinedError) else
                 "security" if isinstance(e, jinja2.sandbox.SecurityError) else
                 "raised" if kind == "TemplateError" else "runtime")
        return {"error": group, "error_class": kind, "error_message": str(e)}
