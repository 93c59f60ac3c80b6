"""Does once what each server would do when it starts; imported last in the process that servers are forked from."""

import gc

from starlette.routing import compile_path

from petstore_server.console.rendering import compile_templates
from petstore_server.console.routes import ROUTES
from petstore_server.operations.admin_port import CONSOLE_PATH
from testing.kept_templates import keep_templates

keep_templates()
compile_templates()
for path in {each.path for each in ROUTES}:
    compile_path(CONSOLE_PATH + path)  # `re` keeps what it has compiled
# A server collects garbage once it serves. That would look at all that is loaded here, and so copy it.
gc.collect()
gc.freeze()
