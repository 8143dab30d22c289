//! Pickles that Python wrote, read and printed in a form that Python prints as well.

use std::collections::HashMap;
use std::process::Command;

use super::value::Content;
use super::{PickleValue, Refusal, Shapes, Values, read};

/// Keeps all containers in their full form.
pub(super) struct KeepAll;

type KeptValues<'a> = Values<'a, ()>;

impl Shapes for KeepAll {
    type Shape = ();

    fn dict(&mut self, _: &[PickleValue], _: &mut KeptValues<'_>) -> Result<Option<()>, Refusal> {
        Ok(None)
    }

    fn list(&mut self, _: &[PickleValue], _: &mut KeptValues<'_>) -> Result<Option<()>, Refusal> {
        Ok(None)
    }

    fn stream(&mut self, _: Option<()>, _: &[PickleValue], _: &mut KeptValues<'_>) -> Result<Option<()>, Refusal> {
        Ok(None)
    }
}

/// Writes random values of built-in types as pickles of every protocol. It also prints each value in a plain form in
/// which containers have numbers, which shows what is shared.
const SCRIPT: &str = r"
import io, pickle, random, struct, sys
rnd = random.Random(int(sys.argv[1]))

def text():
    kind = rnd.randrange(8)
    if kind == 0: return ''
    if kind == 1: return 'a\nb\\u0041\\\r\0\x1a' * rnd.randrange(3)
    if kind == 2: return 'x' * rnd.choice([255, 256, 300])
    return ''.join(chr(rnd.choice([65, 122, 228, 255, 256, 8364, 0x1f600])) for _ in range(rnd.randrange(6)))

def scalar(protocol):
    kind = rnd.randrange(8)
    if kind == 0: return None
    if kind == 1: return rnd.random() < 0.5
    if kind == 2: return rnd.choice([0.0, -0.0, 1.5, -2e300, 5e-324, float('inf'), float('-inf'), rnd.random()])
    if kind == 3 and protocol >= 3: return bytes(rnd.randrange(256) for _ in range(rnd.choice([0, 3, 300])))
    if kind == 4 and protocol >= 5: return bytearray(b'abc')
    if kind <= 6: return rnd.choice([1, -1]) * rnd.choice([rnd.getrandbits(b) for b in (1, 8, 9, 16, 31, 32, 33, 63, 64, 65, 120)])
    return text()

def value(protocol, depth, made):
    if made and rnd.random() < 0.2: return rnd.choice(made)
    kind = rnd.randrange(6) if depth else 5
    count = rnd.choice([0, 1, 2, 3, 4, 7])
    if kind == 0: new = [value(protocol, depth - 1, made) for _ in range(rnd.choice([count, count, count, 1003]) if depth == 1 else count)]
    elif kind == 1: new = {scalar(min(protocol, 2)): value(protocol, depth - 1, made) for _ in range(count)}
    elif kind == 2: new = tuple(value(protocol, depth - 1, made) for _ in range(count))
    elif kind == 3 and protocol >= 4: new = rnd.choice([set, frozenset])(rnd.getrandbits(40) for _ in range(count))
    else: return scalar(protocol)
    if len(plain(new)) < 4000: made.append(new)
    return new

def plain(value, known=None):
    known = {} if known is None else known
    if value is None: return 'N'
    if isinstance(value, bool): return 'T' if value else 'F'
    if isinstance(value, int): return 'i%d' % value
    if isinstance(value, float): return 'f' + struct.pack('>d', value).hex()
    if isinstance(value, str): return 's' + value.encode().hex()
    if isinstance(value, (bytes, bytearray)): return 'b' + bytes(value).hex()
    if isinstance(value, tuple): return '(' + ' '.join(plain(item, known) for item in value) + ')'
    if id(value) in known: return '@%d' % known[id(value)]
    number = known[id(value)] = len(known)
    if isinstance(value, list): inner = ['['] + [plain(item, known) for item in value]
    elif isinstance(value, dict): inner = ['{'] + [plain(item, known) for pair in value.items() for item in pair]
    else: inner = ['<'] + sorted(plain(item, known) for item in value)
    return '#%d%s' % (number, ' '.join(inner))

for round in range(int(sys.argv[2])):
    for protocol in range(6):
        made = []
        it = value(protocol, 4, made)
        for dump in (pickle.dumps, pickle._dumps):
            print(protocol, dump(it, protocol).hex(), plain(it), sep='\t')
";

/// The same form as `plain` in the script.
fn plain(values: &KeptValues<'_>, value: PickleValue, known: &mut HashMap<u32, usize>) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let PickleValue::Object(id) = value else {
        return match value {
            PickleValue::None => "N".to_owned(),
            PickleValue::Bool(value) => if value { "T" } else { "F" }.to_owned(),
            PickleValue::Float(value) => format!("f{:016x}", value.to_bits()),
            PickleValue::Text(_) => format!("s{}", hex(values.text(value).unwrap().as_bytes())),
            PickleValue::Bytes(_) => format!("b{}", hex(values.bytes(value).unwrap())),
            _ => format!("i{}", values.integer(value).unwrap()),
        };
    };
    let all = |items: &[PickleValue], known: &mut HashMap<u32, usize>| -> Vec<String> {
        items.iter().map(|item| plain(values, *item, known)).collect()
    };
    if let Some(Content::Tuple(_)) = values.content(value) {
        return format!("({})", all(values.list(value), known).join(" "));
    }
    if let Some(number) = known.get(&id) {
        return format!("@{number}");
    }
    let number = known.len();
    known.insert(id, number);
    let (begin, inner) = match values.content(value).unwrap() {
        Content::List(_) => ("[", all(values.list(value), known)),
        Content::Dict(_) => ("{", all(values.dict(value), known)),
        _ => {
            let mut inner = all(values.set(value), known);
            inner.sort();
            ("<", inner)
        }
    };
    [vec![format!("#{number}{begin}")], inner].concat().join(" ")
}

fn plainly(bytes: &[u8]) -> Result<String, Refusal> {
    let (values, top) = read(bytes, bytes.len(), &[], &mut KeepAll)?;
    Ok(plain(&values, top, &mut HashMap::new()))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn random_values_are_what_python_pickled_at_every_protocol() {
    let seed = std::env::var("MEMTRACE_TEST_SEED").unwrap_or_else(|_| "1".to_owned());
    let Ok(python) = Command::new("python3").args(["-c", SCRIPT, &seed, "60"]).output() else {
        return eprintln!("NOT RUN: there is no python3");
    };
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let lines = String::from_utf8(python.stdout).unwrap();
    assert_eq!(lines.lines().count(), 60 * 6 * 2);
    for line in lines.lines() {
        let [protocol, pickle, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(plainly(&unhex(pickle)).as_deref(), Ok(expected), "protocol {protocol}: {pickle}");
    }
}

#[test]
fn each_protocol_has_its_own_opcodes_for_the_same_value() {
    let expected = "#0{ s61 #1[ i1 i-2 N T] s62 (f3ff8000000000000)".replace(']', "");
    let pickles: [&[u8]; 4] = [
        b"(dp0\nVa\np1\n(lp2\nI1\naI-2\naNaI01\nasVb\np3\n(F1.5\ntp4\ns.",
        b"}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffNI01\neX\x01\x00\x00\x00bq\x03(G?\xf8\x00\x00\x00\x00\x00\x00tq\x04u.",
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffN\x88eX\x01\x00\x00\x00bG?\xf8\x00\x00\x00\x00\x00\x00\x85u.",
        b"\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01\x8a\x01\xfeN\x88e\x8c\x01bG?\xf8\x00\x00\x00\x00\x00\x00\x85\x94u.",
    ];
    for pickle in pickles {
        assert_eq!(plainly(pickle).as_deref(), Ok(&*expected), "{pickle:?}");
    }
}
