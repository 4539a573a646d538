//! One tree, as CPython wrote it:
//! `{'a': 0, 'b\\\n\xe9\u20ac': {'c': 300}, 'e': {}, 'one': {'x': 70000, 'c': 1 << 40}}`.
//!
//! From 3.7 on, OrderedDict looks the same in all versions and in both picklers, so only one of them is here. The trees of
//! Python 3.0 to 3.2 were written by 3.11 with the `__reduce__` that OrderedDict had then.

pub(super) const WRITTEN: &[(&str, &[u8])] = &[
    (
        "Python 2.7, protocol 0 (C)",
        b"ccollections\nOrderedDict\np1\n((lp2\n(lp3\nS'a'\naI0\naa(lp4\nVb\\u005c\\u000a\
          \xe9\\u20ac\np5\nag1\n((lp6\n(lp7\nS'c'\naI300\naatRp8\naa(lp9\nS'e'\nag1\n((ltRp1\
          0\naa(lp11\nS'one'\np12\nag1\n((lp13\n(lp14\nS'x'\naI70000\naa(lp15\nS'c'\naI10995\
          11627776\naatRp16\naatRp17\n.",
    ),
    (
        "Python 2.7, protocol 0 (Python)",
        b"ccollections\nOrderedDict\np0\n((lp1\n(lp2\nS'a'\np3\naI0\naa(lp4\nVb\\u005c\\u000\
          a\xe9\\u20ac\np5\nag0\n((lp6\n(lp7\nS'c'\np8\naI300\naatp9\nRp10\naa(lp11\nS'e'\np\
          12\nag0\n((lp13\ntp14\nRp15\naa(lp16\nS'one'\np17\nag0\n((lp18\n(lp19\nS'x'\np20\n\
          aI70000\naa(lp21\ng8\naI1099511627776\naatp22\nRp23\naatp24\nRp25\n.",
    ),
    (
        "Python 2.7, protocol 1 (C)",
        b"ccollections\nOrderedDict\nq\x01(]q\x02(]q\x03(U\x01aK\x00e]q\x04(X\x08\x00\x00\
          \x00b\\\n\xc3\xa9\xe2\x82\xacq\x05h\x01(]q\x06]q\x07(U\x01cM,\x01eatRq\x08e]q\x09(\
          U\x01eh\x01(]tRq\ne]q\x0b(U\x03oneq\x0ch\x01(]q\x0d(]q\x0e(U\x01xJp\x11\x01\x00e]q\
          \x0f(U\x01cI1099511627776\neetRq\x10eetRq\x11.",
    ),
    (
        "Python 2.7, protocol 1 (Python)",
        b"ccollections\nOrderedDict\nq\x00(]q\x01(]q\x02(U\x01aq\x03K\x00e]q\x04(X\x08\x00\
          \x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x05h\x00(]q\x06]q\x07(U\x01cq\x08M,\x01eatq\x09\
          Rq\ne]q\x0b(U\x01eq\x0ch\x00(]q\x0dtq\x0eRq\x0fe]q\x10(U\x03oneq\x11h\x00(]q\x12(]\
          q\x13(U\x01xq\x14Jp\x11\x01\x00e]q\x15(h\x08I1099511627776\neetq\x16Rq\x17eetq\x18\
          Rq\x19.",
    ),
    (
        "Python 2.7, protocol 2 (C)",
        b"\x80\x02ccollections\nOrderedDict\nq\x01]q\x02(]q\x03(U\x01aK\x00e]q\x04(X\x08\x00\
          \x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x05h\x01]q\x06]q\x07(U\x01cM,\x01ea\x85Rq\x08e]\
          q\x09(U\x01eh\x01]\x85Rq\ne]q\x0b(U\x03oneq\x0ch\x01]q\x0d(]q\x0e(U\x01xJp\x11\x01\
          \x00e]q\x0f(U\x01cI1099511627776\nee\x85Rq\x10ee\x85Rq\x11.",
    ),
    (
        "Python 2.7, protocol 2 (Python)",
        b"\x80\x02ccollections\nOrderedDict\nq\x00]q\x01(]q\x02(U\x01aq\x03K\x00e]q\x04(X\
          \x08\x00\x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x05h\x00]q\x06]q\x07(U\x01cq\x08M,\x01e\
          a\x85q\x09Rq\ne]q\x0b(U\x01eq\x0ch\x00]q\x0d\x85q\x0eRq\x0fe]q\x10(U\x03oneq\x11h\
          \x00]q\x12(]q\x13(U\x01xq\x14Jp\x11\x01\x00e]q\x15(h\x08I1099511627776\nee\x85q\
          \x16Rq\x17ee\x85q\x18Rq\x19.",
    ),
    (
        "Python 2.7, optimized",
        b"ccollections\nOrderedDict\np0\n((l(lS'a'\naI0\naa(lVb\\u005c\\u000a\xe9\\u20ac\nag\
          0\n((l(lS'c'\np8\naI300\naatRaa(lS'e'\nag0\n((ltRaa(lS'one'\nag0\n((l(lS'x'\naI700\
          00\naa(lg8\naI1099511627776\naatRaatR.",
    ),
    (
        "Python 3.6, protocol 0 (C)",
        b"ccollections\nOrderedDict\np0\n(tRp1\nVa\np2\nL0L\nsVb\\u005c\\u000a\xe9\\u20ac\np\
          3\ng0\n(tRp4\nVc\np5\nL300L\nssVe\np6\ng0\n(tRp7\nsVone\np8\ng0\n(tRp9\nVx\np10\nL\
          70000L\nsg5\nL1099511627776L\nss.",
    ),
    (
        "Python 3.6, protocol 1 (C)",
        b"ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02K\x00X\x08\x00\x00\
          \x00b\\\n\xc3\xa9\xe2\x82\xacq\x03h\x00)Rq\x04X\x01\x00\x00\x00cq\x05M,\x01sX\x01\
          \x00\x00\x00eq\x06h\x00)Rq\x07X\x03\x00\x00\x00oneq\x08h\x00)Rq\x09(X\x01\x00\x00\
          \x00xq\nJp\x11\x01\x00h\x05L1099511627776L\nuu.",
    ),
    (
        "Python 3.6, protocol 2 (C)",
        b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02K\x00X\x08\
          \x00\x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x03h\x00)Rq\x04X\x01\x00\x00\x00cq\x05M,\
          \x01sX\x01\x00\x00\x00eq\x06h\x00)Rq\x07X\x03\x00\x00\x00oneq\x08h\x00)Rq\x09(X\
          \x01\x00\x00\x00xq\nJp\x11\x01\x00h\x05\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.6, protocol 3 (C)",
        b"\x80\x03ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02K\x00X\x08\
          \x00\x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x03h\x00)Rq\x04X\x01\x00\x00\x00cq\x05M,\
          \x01sX\x01\x00\x00\x00eq\x06h\x00)Rq\x07X\x03\x00\x00\x00oneq\x08h\x00)Rq\x09(X\
          \x01\x00\x00\x00xq\nJp\x11\x01\x00h\x05\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.6, protocol 4 (C)",
        b"\x80\x04\x95k\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bOrderedDic\
          t\x94\x93\x94)R\x94(\x8c\x01a\x94K\x00\x8c\x08b\\\n\xc3\xa9\xe2\x82\xac\x94h\x02)R\
          \x94\x8c\x01c\x94M,\x01s\x8c\x01e\x94h\x02)R\x94\x8c\x03one\x94h\x02)R\x94(\x8c\
          \x01x\x94Jp\x11\x01\x00h\x07\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.7, protocol 0 (C)",
        b"ccollections\nOrderedDict\np0\n(tRp1\nVa\np2\nI0\nsVb\\u005c\\u000a\xe9\\u20ac\np3\
          \ng0\n(tRp4\nVc\np5\nI300\nssVe\np6\ng0\n(tRp7\nsVone\np8\ng0\n(tRp9\nVx\np10\nI70\
          000\nsg5\nL1099511627776L\nss.",
    ),
    (
        "Python 3.8, protocol 0, dict",
        b"(dp0\nVa\np1\nI0\nsVb\\u005c\\u000a\xe9\\u20ac\np2\n(dp3\nVc\np4\nI300\nssVe\np5\n\
          (dp6\nsVone\np7\n(dp8\nVx\np9\nI70000\nsg4\nL1099511627776L\nss.",
    ),
    (
        "Python 3.8, protocol 1, dict",
        b"}q\x00(X\x01\x00\x00\x00aq\x01K\x00X\x08\x00\x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x02\
          }q\x03X\x01\x00\x00\x00cq\x04M,\x01sX\x01\x00\x00\x00eq\x05}q\x06X\x03\x00\x00\x00\
          oneq\x07}q\x08(X\x01\x00\x00\x00xq\x09Jp\x11\x01\x00h\x04L1099511627776L\nuu.",
    ),
    (
        "Python 3.8, protocol 2, dict",
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\x00X\x08\x00\x00\x00b\\\n\xc3\xa9\xe2\x82\
          \xacq\x02}q\x03X\x01\x00\x00\x00cq\x04M,\x01sX\x01\x00\x00\x00eq\x05}q\x06X\x03\
          \x00\x00\x00oneq\x07}q\x08(X\x01\x00\x00\x00xq\x09Jp\x11\x01\x00h\x04\x8a\x06\x00\
          \x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.8, protocol 3, dict",
        b"\x80\x03}q\x00(X\x01\x00\x00\x00aq\x01K\x00X\x08\x00\x00\x00b\\\n\xc3\xa9\xe2\x82\
          \xacq\x02}q\x03X\x01\x00\x00\x00cq\x04M,\x01sX\x01\x00\x00\x00eq\x05}q\x06X\x03\
          \x00\x00\x00oneq\x07}q\x08(X\x01\x00\x00\x00xq\x09Jp\x11\x01\x00h\x04\x8a\x06\x00\
          \x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.8, protocol 4, dict",
        b"\x80\x04\x95C\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x00\x8c\x08b\\\n\xc3\
          \xa9\xe2\x82\xac\x94}\x94\x8c\x01c\x94M,\x01s\x8c\x01e\x94}\x94\x8c\x03one\x94}\
          \x94(\x8c\x01x\x94Jp\x11\x01\x00h\x04\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.8, protocol 5 (C)",
        b"\x80\x05\x95k\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bOrderedDic\
          t\x94\x93\x94)R\x94(\x8c\x01a\x94K\x00\x8c\x08b\\\n\xc3\xa9\xe2\x82\xac\x94h\x02)R\
          \x94\x8c\x01c\x94M,\x01s\x8c\x01e\x94h\x02)R\x94\x8c\x03one\x94h\x02)R\x94(\x8c\
          \x01x\x94Jp\x11\x01\x00h\x07\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.8, protocol 5, dict",
        b"\x80\x05\x95C\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x00\x8c\x08b\\\n\xc3\
          \xa9\xe2\x82\xac\x94}\x94\x8c\x01c\x94M,\x01s\x8c\x01e\x94}\x94\x8c\x03one\x94}\
          \x94(\x8c\x01x\x94Jp\x11\x01\x00h\x04\x8a\x06\x00\x00\x00\x00\x00\x01uu.",
    ),
    (
        "Python 3.11, optimized",
        b"\x80\x04\x95`\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x8c\x0bOrderedDict\
          \x93\x94)R(\x8c\x01aK\x00\x8c\x08b\\\n\xc3\xa9\xe2\x82\xach\x00)R\x8c\x01c\x94M,\
          \x01s\x8c\x01eh\x00)R\x8c\x03oneh\x00)R(\x8c\x01xJp\x11\x01\x00h\x01\x8a\x06\x00\
          \x00\x00\x00\x00\x01uu.",
    ),
    (
        "as Python 3.2 writes it, protocol 3",
        b"\x80\x03ccollections\nOrderedDict\nq\x00]q\x01(]q\x02(X\x01\x00\x00\x00aq\x03K\x00\
          e]q\x04(X\x08\x00\x00\x00b\\\n\xc3\xa9\xe2\x82\xacq\x05h\x00]q\x06]q\x07(X\x01\x00\
          \x00\x00cq\x08M,\x01ea\x85q\x09Rq\ne]q\x0b(X\x01\x00\x00\x00eq\x0ch\x00]q\x0d\x85q\
          \x0eRq\x0fe]q\x10(X\x03\x00\x00\x00oneq\x11h\x00]q\x12(]q\x13(X\x01\x00\x00\x00xq\
          \x14Jp\x11\x01\x00e]q\x15(h\x08\x8a\x06\x00\x00\x00\x00\x00\x01ee\x85q\x16Rq\x17ee\
          \x85q\x18Rq\x19.",
    ),
    (
        "as Python 3.2 writes it, protocol 0",
        b"ccollections\nOrderedDict\np0\n((lp1\n(lp2\nVa\np3\naI0\naa(lp4\nVb\\u005c\\u000a\
          \xe9\\u20ac\np5\nag0\n((lp6\n(lp7\nVc\np8\naI300\naatp9\nRp10\naa(lp11\nVe\np12\na\
          g0\n((lp13\ntp14\nRp15\naa(lp16\nVone\np17\nag0\n((lp18\n(lp19\nVx\np20\naI70000\n\
          aa(lp21\ng8\naL1099511627776L\naatp22\nRp23\naatp24\nRp25\n.",
    ),
];
