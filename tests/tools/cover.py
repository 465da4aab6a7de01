#!/usr/bin/env python3
"""Finds tests that reach little that other tests do not reach: CI skips them under sanitizers.

    cover.py measure BUILD DATA [options of ctest]   run each test of the build folder BUILD, two at a time, and write what
                                                     each reaches to a file in DATA; existing files stay
    cover.py choose DATA LOG SECONDS                 print tests/left_out.txt; LOG is ctest's output under sanitizers, with the
                                                     seconds of each test

A test reaches arcs (from one basic block of a function to the next, as counted by gcc's --coverage) of the product's objects.
`choose` keeps tests that ALWAYS names and those that fail or are skipped here; from the others it repeatedly takes
the test with the most new arcs per second, until they take SECONDS.  The rest is the list. A test without data is not in the list,
so CI runs it.

The build counts arcs and has the tests of the round with sanitizers (-fsanitize=return does nothing in C):

    cmake -G Ninja -S . -B BUILD -DCMAKE_BUILD_TYPE=Coverage -DCALM_SANITIZE=return -DCALM_TESTS=ON \\
        -DCMAKE_C_COMPILER_LAUNCHER=$PWD/tests/tools/cover_cc \\
        -DCMAKE_C_FLAGS_COVERAGE='-O1 -fno-inline --coverage -DNDEBUG'
    ninja -C BUILD
    tests/tools/cover.py measure BUILD DATA -LE slow
    tests/run --sanitize -LE slow | tee LOG
    tests/tools/cover.py choose DATA LOG 430 >tests/left_out.txt

It takes half an hour on two cores."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

# Tests that sanitizers are for: broken files, exhausted memory, operands of every odd size, processes that are
# stopped (whose arcs are not counted either).
ALWAYS = re.compile(r'^fuzz[.]|malformed|memory|limits|faults|interrupted|terminal|kill|first_mistakes|refus|test_algorithms')

TAG_FUNCTION, TAG_ARCS = 0x01000000, 0x01a10000    # gcov-io.h of gcc 12: lengths in bytes, below zero where all are zero


def arcs_of(data):
    """Returns (function, arc) for each executed arc of one .gcda file."""
    if len(data) < 16 or data[:4] != b'adcg':
        raise ValueError('no .gcda file of gcc 12')
    at, function = 16, 0
    while at + 8 <= len(data):
        tag, length = struct.unpack_from('<Ii', data, at)
        at += 8
        if tag == 0:
            break
        if tag == TAG_FUNCTION and length:
            function = struct.unpack_from('<I', data, at)[0]
        elif tag == TAG_ARCS and length > 0:
            for arc, count in enumerate(struct.unpack_from(f'<{length // 8}q', data, at)):
                if count:
                    yield function, arc
        at += max(length, 0)


def reached(folder, build):
    """Returns the names of the product's executed arcs, from the .gcda files below `folder`."""
    found = set()
    root = folder + os.path.realpath(build)
    for path in pathlib.Path(root).rglob('*.gcda'):
        name = str(path.relative_to(root))
        if name.startswith('CMakeFiles/'):    # tests and their tools are under tests/
            found.update(f'{name[:-5]} {function:x} {arc}' for function, arc in arcs_of(path.read_bytes()))
    return found


def run_test(test, build, data):
    out = data / (test['name'] + '.z')
    if out.exists():
        return
    properties = {p['name']: p['value'] for p in test['properties']}
    env = dict(os.environ, OMP_WAIT_POLICY='passive')
    env.update(e.split('=', 1) for e in properties.get('ENVIRONMENT', []))
    for change in properties.get('ENVIRONMENT_MODIFICATION', []):
        env.pop(change.split('=', 1)[0], None)
    memory = tempfile.mkdtemp(prefix='cover.', dir='/dev/shm')
    os.mkdir(memory + '/tmp')
    env.update(GCOV_PREFIX=memory + '/arcs', TMPDIR=memory + '/tmp')
    try:
        result = subprocess.run(test['command'], cwd=properties.get('WORKING_DIRECTORY', build), env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)
        code, said = result.returncode, result.stdout.decode(errors='replace')[-2000:]
    except subprocess.TimeoutExpired:
        code, said = 'too long', ''
    arcs = reached(memory + '/arcs', build)
    shutil.rmtree(memory, ignore_errors=True)
    out.write_bytes(zlib.compress('\n'.join([str(code)] + sorted(arcs)).encode()))
    print(test['name'], len(arcs), 'arcs' if code == 0 else f'arcs, exit status {code}: {said}', flush=True)


def measure(build, data, *options):
    listed = subprocess.run(['ctest', '--test-dir', build, '--show-only=json-v1', *options], check=True, capture_output=True)
    tests = [t for t in json.loads(listed.stdout)['tests'] if 'command' in t]
    tests.sort(key=lambda t: -next((p['value'] for p in t['properties'] if p['name'] == 'COST'), 0))
    data = pathlib.Path(data)
    data.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda test: run_test(test, build, data), tests))


def seconds_of(log):
    found = re.findall(r'Test +#\d+: (\S+) [.]*[ *]*\S+ +([\d.]+) sec', pathlib.Path(log).read_text(errors='replace'))
    return {name: float(seconds) for name, seconds in found}


def choose(data, log, most):
    seconds = seconds_of(log)
    numbers, masks, codes, functions = {}, {}, {}, {}
    for path in sorted(pathlib.Path(data).glob('*.z')):
        code, *arcs = zlib.decompress(path.read_bytes()).decode().split('\n')
        mask = 0
        for start in range(0, len(arcs), 1 << 16):
            some = bytearray(1 << 17)
            for arc in arcs[start:start + (1 << 16)]:
                number = numbers.setdefault(arc, len(numbers))
                some[number >> 3] |= 1 << (number & 7)
            mask |= int.from_bytes(some, 'little')
        masks[path.stem], codes[path.stem] = mask, code
        functions[path.stem] = {arc.rsplit(' ', 1)[0] for arc in arcs if arc}
    if len(numbers) > 1 << 20:
        raise ValueError('more arcs than a mask has bits')
    cost = {name: max(seconds.get(name, 1), .05) for name in masks}
    kept = [name for name in masks if codes[name] != '0' or ALWAYS.search(name)]
    everything = have = 0
    for name, mask in masks.items():
        everything |= mask
        have |= mask if name in kept else 0
    left = {name: masks[name] for name in masks if name not in kept}
    chosen, spent = [], 0
    while left:
        left = {name: mask & ~have for name, mask in left.items()}
        best = max(left, key=lambda name: left[name].bit_count() / cost[name])
        if not left[best] or spent + cost[best] > most:
            break
        have |= left.pop(best)
        chosen.append(best)
        spent += cost[best]
    print(f'{len(masks)} tests of {sum(cost.values()):.0f} s reach {everything.bit_count()} arcs; always run: {len(kept)} of '
          f'{sum(cost[n] for n in kept):.0f} s; chosen: {len(chosen)} of {spent:.0f} s; left out: {len(left)} of '
          f'{sum(cost[n] for n in left):.0f} s and {(everything & ~have).bit_count()} arcs that no other reaches',
          file=sys.stderr)
    stay = set().union(*(functions[name] for name in kept + chosen))
    print(f'{len(set().union(*functions.values()) - stay)} of {len(set().union(*functions.values()))} functions are then '
          'reached by none', file=sys.stderr)
    return sorted((name, (mask & ~have).bit_count(), cost[name]) for name, mask in left.items())


if __name__ == '__main__':
    if len(sys.argv) >= 4 and sys.argv[1] == 'measure':
        measure(*sys.argv[2:])
    elif len(sys.argv) == 5 and sys.argv[1] == 'choose':
        print('# Tests that CI skips under sanitizers (.ci/run), because they reach the fewest branches per second that other tests\n'
              '# do not reach.  CI runs them without sanitizers; `tests/run --sanitize` runs them too.  tests/tools/cover.py wrote\n'
              '# this file.\n'
              '# test                                   branches that only these tests reach   seconds')
        for name, own, seconds in choose(sys.argv[2], sys.argv[3], float(sys.argv[4])):
            print(f'{name:<40} {own:4} {seconds:6.1f}')
    else:
        sys.exit(__doc__)
