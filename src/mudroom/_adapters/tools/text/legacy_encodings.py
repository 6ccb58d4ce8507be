"""Guesses encodings older than Unicode, preferring no answer to a wrong one.

The bytes of a short text are valid in many encodings. The right one makes the text ordinary: a
language's most frequent characters make up most of what people write in it. Only Windows-1252, GBK
and Shift-JIS are ever the answer; the others are tried because a text that is as ordinary in one of
them is ambiguous.
"""

from __future__ import annotations

import codecs
import re

_MAX_SAMPLE = 1 << 16  # bytes
_LINE = re.compile(rb"(?:(?<=\n)|\A)[\0-\x09\x0b-\x7f]*[\x80-\xff][^\n]*")
_RUN = re.compile(rb"[\x80-\xff]+")

_CHINESE = frozenset(
    "的一是不了在人有我他这中大来上个国和也子时道说要就出会可你对生能而那得于着下自之年过发后作里用"
    "然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军"
    "者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政"
    "美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及"
    "比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做"
    "接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像"
    "难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带"
    "导争运笔转准备错误测试函数变量注释配置用户登录密码查询列表返回参数字符串输入输出类型默认值文件编码"
    "读写删除添加修改更新初始化循环判断异常请检验完成成功失败显示页面按钮点击获取服务器端口地址连接网络"
    "系统版本说明简单示例描述标题内容状态时间日期价格数量订单商品姓名年龄性别编号序号备注项目任务启动停"
    "止运行执行调用方法对象属性单位汉语言繁简您好谢早晚春夏秋冬左右低长短快慢苹梨香蕉"
)
_JAPANESE_KANJI = frozenset(
    "日本語人大年一国会中出上十生子分東三行同今高金時手見市力米自前円合立内二事社者地京間田体学下目五"
    "後新明方部女八心四民対主正代言九小思七山実入回場野開万全定家北六問話文動度県水安氏和政保表道相意"
    "発不党漢字変数関名処理値設定確認登録検索削除更新追加編集初期化終了開始結果入力用件件画面表示接続通"
    "信情報使作成取得型配列引返戻読書込違注釈説明機能試験計算"
)
_TRADITIONAL = frozenset(
    "的一是不我有大在人了中到資要以可這個你會好為上來學就交也用能如時文沒說他看那問生提下過請們天所多"
    "麼小想得之還電出工對都機自後子而訊站去心只家知國台很信成章何同道地發法無然但嗎當於本現年前真最和"
    "新因果定意情點題其事方清科樣些吧三此位理行作經者什謝名日正話開測試變數函檔案註釋"
)
_KOREAN = frozenset(
    "이다는을를에가의은고하지기로사한아도자시리그나어서인들대라보정스일전부수제주해과와게장만니국우것있"
    "상구여안었관경원신공화중성등민요까없생무적연소면위문치미르년조모선유으계실회동비오세학습방명거내식습"
    "한국글말변수함주석테스트파값입력출"
)
_NEUTRAL = frozenset(
    "　、。，．・：；？！“”‘’（）〔〕【】《》〈〉「」『』—～…·￥×→←↑↓①②③④⑤％＋－＝＜＞／＼＃＆＊＠"
)

_WESTERN = frozenset("àâäåæçèéêëíîïñóôöøùúûüßáãõœ")
_WESTERN_CAPITALS = frozenset("ÀÂÄÅÆÇÈÉÊÎÑÖÓØÜÚÁÍ")
_WESTERN_SIGNS = frozenset("“”‘’–—•…€™©®°§«»·±²³µ½¼¾£ª\xa0º")
# Each of these is also a word by itself. Russian has such words at the same bytes, so they prove
# nothing.
_WESTERN_WORDS = frozenset("àéèóÀÈÉ")

_RUSSIAN_WORDS = (
    # Words in cp1251 and in koi8-r: small letters, perhaps after a capital; the vowels.
    (
        re.compile(rb"[\xc0-\xdf]?[\xe0-\xff]+"),
        re.compile(rb"[\xc0\xc5\xc8\xce\xd3\xdb\xdd-\xe0\xe5\xe8\xee\xf3\xfb\xfd-\xff]"),
    ),
    (
        re.compile(rb"[\xe0-\xff]?[\xc0-\xdf]+"),
        re.compile(rb"[\xc0\xc1\xc5\xc9\xcf\xd1\xd5\xd9\xdc\xe0\xe1\xe5\xe9\xef\xf1\xf5\xf9\xfc]"),
    ),
)


def guess_legacy_codec(data: bytes) -> str:
    """Guess cp1252, gbk, gb18030 or cp932 if the text is ordinary only in it; else ""."""
    data = _take_sample(data)
    runs = set(_RUN.findall(data))
    if _is_western(data):
        return "cp1252"
    chinese, codec = _rate_chinese(data)
    japanese = _rate_japanese(data, "cp932")
    others = max(
        _rate(_decode(data, "cp949"), _KOREAN),
        _rate(_decode(data, "big5"), _TRADITIONAL),
        _rate_japanese(data, "euc_jp"),
        _rate_russian(runs),
    )
    if japanese >= 0.6 and japanese >= 2 * max(chinese, others):
        return "cp932"
    if chinese >= 0.4 and chinese >= 2 * max(japanese, others):
        return codec
    return ""


def _take_sample(data: bytes) -> bytes:
    """Take the first lines that are not ASCII: more would take seconds and tell nothing new."""
    lines: list[bytes] = []
    room = _MAX_SAMPLE
    for match in _LINE.finditer(data):
        lines.append(match[0][:room])
        room -= len(lines[-1])
        if room <= 0:
            break
    return b"\n".join(lines)


def _decode(data: bytes, codec: str) -> str:
    """Decode the characters that are not ASCII; "" if some bytes are invalid."""
    try:
        # An incremental decoder accepts a sample that ends within a character.
        text = codecs.getincrementaldecoder(codec)().decode(data)
        return re.sub(r"[\0-\x7f]+", "", text)
    except UnicodeDecodeError:
        return ""


def _rate(text: str, common: frozenset[str]) -> float:
    """Rate the share of common characters. Punctuation does not count."""
    counted = [character for character in text if character not in _NEUTRAL]
    if not counted:
        return 0.0
    return sum(character in common for character in counted) / len(counted)


def _rate_chinese(data: bytes) -> tuple[float, str]:
    codec = "gbk"
    text = _decode(data, codec)
    if not text:
        codec = "gb18030"
        text = _decode(data, codec)
    hanzi = [character for character in text if character not in _NEUTRAL]
    if len(hanzi) < 2 or sum(map(_is_level_1, hanzi)) < 0.9 * len(hanzi):
        return 0.0, codec
    return _rate(text, _CHINESE), codec


def _is_level_1(character: str) -> bool:
    """Return whether a character is among GB 2312's 3,755 in everyday use."""
    try:
        encoded = character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return b"\xb0" <= encoded[:1] <= b"\xd7"


def _rate_japanese(data: bytes, codec: str) -> float:
    """Rate the text as Japanese, where kana are frequent but half-width ones are not."""
    text = _decode(data, codec)
    if len(text) < 2 or re.search("[\uff61-\uff9f]", text):
        return 0.0
    kana = frozenset(character for character in text if "ぁ" <= character <= "ヾ")
    return _rate(text, kana | _JAPANESE_KANJI)


def _rate_russian(runs: set[bytes]) -> float:
    """Rate the text as Russian by the share of runs that can be words."""
    if not runs:
        return 0.0
    rates = [
        sum(bool(word.fullmatch(run) and vowel.search(run)) for run in runs) / len(runs)
        for word, vowel in _RUSSIAN_WORDS
    ]
    return max(rates)


def _is_western(data: bytes) -> bool:
    """Return whether all letters outside ASCII are within Western European words.

    The encodings for Turkish, Polish or Czech have most of these letters at the same bytes, and
    others at bytes that are unusual here.
    """
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return False
    matches = list(re.finditer(r"(?<=([\0-\x7f]))?[^\0-\x7f]+(?=([\0-\x7f]))?", text))
    ordinary = 0
    unusual = 0
    for match in matches:
        before = text[match.start() - 1 : match.start()]
        after = text[match.end() : match.end() + 1]
        fits = _fits_western(before, match[0], after)
        ordinary += fits is True
        unusual += fits is False
    return ordinary > 0 and 20 * unusual <= ordinary


def _fits_western(before: str, run: str, after: str) -> bool | None:
    letters = run.strip("".join(_WESTERN_SIGNS))
    if run in "¿¡":
        return False if before.isalpha() else None
    if not letters:
        opens_within_word = run[0] in "“«" and before.isalpha()
        closes_before_word = run[-1] in "”»…" and after.isalpha()
        if len(run) > 3 or opens_within_word or closes_before_word:
            return False
        # A sign from A0 on and an ASCII character from "0" on may form a two-byte character.
        return None if "\xa0" <= run[-1] <= "\xff" and after >= "0" else True
    left = before.isalpha() and run.startswith(letters)
    right = after.isalpha() and run.endswith(letters)
    if len(letters) == 1 and letters in _WESTERN_WORDS and not left and not right:
        return None
    if not left and not right:
        return False
    if letters[0] in _WESTERN_CAPITALS:
        rest_is_small = set(letters[1:]) <= _WESTERN
        return rest_is_small and not (left and before.islower()) and len(letters) <= 2
    return len(letters) <= 2 and set(letters) <= _WESTERN
