"""Show the layers that `of_rank` makes with the arguments that they take."""

import ast

import griffe


class LayersOfRank(griffe.Extension):
    """Read ``@of_rank(layer, rank)``: the function takes the arguments of ``layer``, without the first."""

    def on_function_instance(self, *, node, func, agent, **_):
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "of_rank":
                layer = func.parent[ast.unparse(decorator.args[0])]
                func.parameters = griffe.Parameters(*list(layer.parameters)[1:])
