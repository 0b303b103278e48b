from tensorflow.contrib.training import HParams


def _hparams():
    return HParams(a=1, b=2.5, c="x", d=[1, 2], e=True, f=[0.5], s=["p", "q"], l=[True, False])


def _result(function):
    try:
        return str(function())
    except (KeyError, ValueError) as error:
        return type(error).__name__


def texts_of_hparams():
    hparams = _hparams()
    return [str(hparams), repr(hparams), hparams.to_json(), hparams.to_json(indent=1, sort_keys=True)]


TEXTS = """
a=3
b=4
b=1e-3
a=3,b=4
a=3, b=4
a=3 , b=4
a = 3
a=3,
c=hello world
c=
c=x=y
c=x]
c="q"
d=[3,4,5]
d=[3 4]
d=[]
d=[1], a=2
s=[a, b]
s=[a,b ,c]
s=[ a,,b]
e=false
e=True
e=0
e=2
l=[true,0]
f=[1,2]
a=1_000
b=inf
c=a=b,d=[3]
d=3
d[1]=7
c=[1]
e=yes
e=FALSE
a=2.0
a=
d=[1,2.5]
 a=3
a=3,,b=4
a=3;b=4
nope=3
a=3,a=4
d=[1],d[0]=2
a[0]=3
c=a b,c
d=[1,2
d=[1]a=2
a
,
_a=3
a.b=3
""".splitlines()


def parsed_hparams():
    return [[text, _result(lambda text=text: _hparams().parse(text))] for text in TEXTS]


def changed_hparams():
    def changed(old, new):
        hparams = HParams(a=old)
        hparams.set_hparam("a", new)
        return hparams

    pairs = [
        (1, 2.5), (1, 2.0), (1, True), (1, "3"), (1.0, 2), (1.0, "x"), (True, 1), ("x", 1), ("x", b"y"), (1.5, None),
        ([1], [2, 3]), ([1], 2), (1, [2]), ([1], [2.5]), ([1.5], [2]), ((1, 2), [3]), (None, 3), ({"x": 1}, {"y": 2}),
        (len, max),
    ]  # fmt: skip
    return [[str(pair), _result(lambda pair=pair: changed(*pair))] for pair in pairs]


def methods_of_hparams():
    hparams = _hparams()
    results = [
        _result(lambda: hparams.get("a")),
        _result(lambda: hparams.get("nope", 3)),
        _result(lambda: hparams.get("d", [3])),
        _result(lambda: hparams.add_hparam("a", 2)),
        _result(lambda: hparams.add_hparam("values", 2)),
        _result(lambda: hparams.add_hparam("g", [])),
        _result(lambda: hparams.set_hparam("nope", 2)),
        _result(lambda: hparams.override_from_dict({"a": 5, "d": [9]})),
        _result(lambda: hparams.override_from_dict({"nope": 5})),
        _result(lambda: hparams.parse_json('{"a": 7, "b": 3}')),
        "a" in hparams,
    ]
    hparams.del_hparam("a")
    hparams.del_hparam("nope")
    hparams.b = 9
    hparams.other = 3
    return [*results, "a" in hparams, str(hparams), sorted(hparams.values().items())]
