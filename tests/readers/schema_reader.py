"""Compares calm's check of recipes with Python's jsonschema and calm's schema, on every recipe in the tree and mutations of them.

    schema_reader.py SCHEMA FOLDER RECIPE...

Writes the mutations to FOLDER, asks schema_valid (in PATH) about all of them and compares valid with valid, and the place of
calm's first fault with the places that jsonschema knows of.
"""
import json, random, subprocess, sys, warnings

warnings.simplefilter("ignore")
import jsonschema

schema_path, folder, recipes = sys.argv[1], sys.argv[2], sys.argv[3:]
validator = jsonschema.Draft202012Validator(json.load(open(schema_path)))
validator.check_schema(validator.schema)
rng = random.Random(7)
values = [None, True, False, 0, 1, -1, 1.0, 2.5, 1e30, "", "x", "none", "a" * 600, [], [1], ["x", "x"], {}, {"name": "x"},
          {"name": "x", "options": {"a": 1}}, "0" * 64, "job", "w4a16_g128", [2.5, 3]]


def places(value, path=()):
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(child, path + (key,))


def mutate(root):
    root = json.loads(json.dumps(root))
    path = rng.choice([p for p in places(root) if p])
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    what = rng.randrange(4)
    if what == 0:
        del parent[path[-1]]
    elif what == 1 and isinstance(parent, dict):
        parent[rng.choice(["sampels", "name", "sha256", "text", "a/b~c"])] = rng.choice(values)
    elif what == 2 and isinstance(parent, list):
        parent.append(rng.choice(values))
    else:
        parent[path[-1]] = rng.choice(values)
    return root


def pointer(path):
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def pointers(errors):
    """Returns the places of jsonschema's faults: for unknown keys and key names that of the object that has them."""
    for error in errors:
        at = pointer(error.absolute_path)
        yield at
        if isinstance(error.instance, dict):
            yield from (at + pointer([key]) for key in error.instance)
        if "propertyNames" in error.absolute_schema_path:
            yield at + pointer([error.instance])
        yield from pointers(error.context)


files, documents = [], []
sources = [json.load(open(path)) for path in recipes]
for path, document in zip(recipes, sources):
    files.append(path)
    documents.append(document)
for i in range(1500):
    source = rng.choice(sources)
    if not isinstance(source, dict):
        continue
    document = mutate(source)
    for _ in range(rng.randrange(2)):
        document = mutate(document) if document else document
    files.append(f"{folder}/mutation{i}.json")
    documents.append(document)
    json.dump(document, open(files[-1], "w"))
said = subprocess.run(["schema_valid", *files], capture_output=True, text=True, check=True).stdout.splitlines()
assert len(said) == len(files), (len(said), len(files))
wrong = valid = 0
for path, document, line in zip(files, documents, said):
    found = line.split(" ", 1)[1]
    errors = list(validator.iter_errors(document))
    valid += not errors
    at = "" if found == "(document)" else found
    if (found == "valid") != (not errors) or (errors and at not in set(pointers(errors))):
        wrong += 1
        print(f"{path}: calm says {found}, jsonschema {[(pointer(e.absolute_path), e.message[:80]) for e in errors]}")
        print("   ", json.dumps(document)[:400])
assert 50 < valid < len(files) - 50, valid
print(f"{len(files)} documents, {valid} of them valid, {wrong} judged differently")
sys.exit(1 if wrong else 0)
