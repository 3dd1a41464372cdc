"""Tell Dutch from English in a short chat message, or say that it cannot be told.

Words that only one of the two has count for it, and a word that is in no list is judged by its spelling. On the messages of
`tests/unit/test_language.py` this decides more of them than a general detector does (which is unsure about single words),
without its model and numpy, and it loads in a millisecond: the webhook's path imports this module.
"""

from __future__ import annotations

import re
from typing import Literal

type Language = Literal["nl", "en"]

# A word of the list counts 3, a spelling 1 for each sign; less than this between the two is a guess.
_SURE = 2
_WORD = 3
_WORDS_READ = 400

# Words that both have (is, in, was, we, of, over, me, die, stop, help, contract, weekend) are in neither list.
_DUTCH = frozenset(
    """
    aan aanvragen achter al alle allemaal alleen als altijd ander andere auto baas bedankt beetje begin behalve ben bent
    beide bij bijna bijvoorbeeld binnen blij blijft bruiloft buiten collega collega's daar daarna daarom dag dagen dan dank
    dankje dankjewel dankuwel dat de deze dit doe doei doen doet door dus echt een eens eerder eerst eerste eigen en
    enige enkel er ergens fijn fijne fiets gaan gaat ga geef geen gegevens gehad geld geldt geldig gisteren goed goede goeie
    graag groetjes haar had hallo hebben hebt heb heeft heel heen helaas hele het hetzelfde hem hen hier hij hoe hoelang hoeveel
    hoi hoeft hoezo hoor hun idd ieder iedereen iemand iets ik indien ja jaar je jij jou jouw jullie kan kapot kapotte keer
    kind klopt komen komt kost kosten krijg krijgen krijgt kun kunnen kunt kwijt laat laatste land lang lang later lekker lukt
    maak maand maandag maar maken mag mailen mee meer meld melden meneer met mevrouw mij mijn minder misschien mn moest moet
    moeten mogen moment morgen naar na nee nemen neem net nieuw nieuwe niemand niet niets nodig nog nooit nou nu omdat
    onder ongeveer ons onze ook om onkosten oke oké op opnieuw opa oma ouders pas precies regelen rond salaris samen
    sinds snap snel soms sowieso staan staat steeds straks stuk stuur sturen sws tegen terug thuis tijd tijdens toch toen tot
    tussen twee u uit uren uur uw vaak vakantie van vanaf vandaag vanwege veel ver verder verlof via vind vinden volgend volgende
    voor vooraf vraag vraagje vragen vrij vrijdag vrouw waar waarom waarvoor wachten wachtwoord wanneer waren wat week
    weer weg wel welk welke werk werkdag werken werkt weten weet wie wij wil willen wilt woensdag wordt worden zaterdag ze
    zeg zeggen zei zelf zelfs ziek zien ziet zij zijn zit zo zo'n zoals zodat zoek zoeken zondag zonder zou zouden zullen zal
    """.split()
) - {"begin", "had", "hen", "land", "via", "week", "moment", "ver", "net", "pas", "later", "die", "lang", "auto", "kind"}

_ENGLISH = frozenset(
    """
    a about after again all allowed already also always am an and another any anybody anyone anything are aren't around ask
    asked at away back be because been before being best better between boss both bring broken but by bye call came can
    can't cannot cause change check claim claims colleague come cost could couldn't day days desk did didn't different do does doesn't
    doing don't done dont down during each early either else email end enough even ever every everyone everything expenses
    few fill find first for forgot forms found friday from fully get gets getting give go goes going gonna good got great had
    has have haven't having he hello her here hey hi him his holiday holidays home hour hours how however husband i i'm i'd i'll i've
    if im isn't it it's its job just keep kid kids know last late leave left less let like link long lost lot made make
    manager many may maybe mean might money month more morning most much must my need needs never new next no nobody none
    nope not nothing now nvm off often old once one only or other our out own paid parking password pay payday payslip
    pension people person phone pick please quick question really receive regarding request salary same say see send shall she should
    show sick since some someone something soon sorry spend start still such sure take taking tell than thank thanks
    that that's the their them then there these they thing think this those though through thx till time to today together tomorrow
    too travel true try two under until up upon us use used using vacation very wait want was way wedding well went were what
    what's when where where's whether which while who who's whose why wife will with within without won't work working worked works
    would wouldn't wrong yeah year years yes yesterday yet you you're your yours
    """.split()
) - {"had", "was", "check", "link", "boss", "manager", "email", "password", "start", "end", "best", "do", "want", "may"}

# Words of the neighbours' languages: a message full of them is neither.
_OTHER = frozenset(
    """
    aber au auf avec beaucoup bin bir bonjour como con cuando czy das days de días dla dni dobry der des di dias dla du e ein el
    est et für gibt guten hallo hola il ich ile ist jak je jest jours kann kein la le les los mam mein merci merhaba mi mit
    muchas mă nicht nie oder para pas por pour puedo quand que qué quiero sind sie sont su sunt teşekkürler tengo una und
    urlaub urlop vacaciones ve ver var vous wann wenn wir y zu
    """.split()
) - _DUTCH - _ENGLISH

# Signs of spelling, one point each: what the one language writes often and the other hardly ever.
_DUTCH_SIGNS = re.compile(
    r"ij|aa|uu|ieu|eeu|auw|ouw|oei|ooi|cht|lijk|heid|sch(?!ool|edul|em)|tje(?:s)?\b|atie\b|iteit\b|\bge\w{3,}[dt]\b|\bver[b-df-hj-np-tv-z]"
    r"|\bont[a-z]{3}|\baan|\buit|\bvoor|\bover[a-z]{3}|\bzw|\bz[aeiou]|eur\b|uur|oef|oed|oet|oek|oen|oer|euk|eug|vrij|ui[dgjklmnrtvz]"
    r"|kk|[aeiou]k\b|[bdfgklmnprstvz]en\b|\bkw|\bkn[aeiou]|dienst|werk|dag(?:en)?\b|[rstlnd]ing(?:en)?\b|\bbe[gkvwz]|erij|iek\b|é[eé]n|ë"
)
_ENGLISH_SIGNS = re.compile(
    r"th|wh|sh|ck|ough|ould|tion|igh|ness\b|ment\b|ful\b|less\b|able\b|[a-z]ly\b|ing\b|[bcdfghjklmnprstvwxz]y\b|ay\b|ey\b|oy\b"
    r"|ea[a-z]|oa[a-z]|\bun[a-z]{3}|ow|aw|'s\b|'t\b|n't|[aeiou]ry\b|ance\b|ence\b|sio|[^aeiou]ies\b|[a-z]{2}ed\b|qu|x|\bc[aou]|ss\b|ll\b"
    r"|ce\b|ge\b|te\b|se\b|ve\b|\by"
)

_NOISE = re.compile(r"https?://\S+|www\.\S+|\S+@\S+|\b\w+\.(?:nl|com|org|net|eu|be)\b\S*", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def detect(text: str) -> Language | None:
    """The language of a message or document; None when unsure (names, numbers, emoji, another language, a word of both).

    Reads at most the first 400 words.
    """
    words = [word.lower().replace("’", "'") for word in _first_words(_NOISE.sub(" ", text[:20_000]))]
    dutch = english = other = 0
    for word in words:
        if word in _DUTCH:
            dutch += _WORD
        elif word in _ENGLISH:
            english += _WORD
        elif word in _OTHER or not word.isascii() and not _latin(word):
            other += _WORD
        elif len(word) > 2:
            dutch += min(len(_DUTCH_SIGNS.findall(word)), 2)
            english += min(len(_ENGLISH_SIGNS.findall(word)), 2)
    most = max(dutch, english)
    if abs(dutch - english) < _SURE or other >= most or abs(dutch - english) * 5 < most:
        return None
    return "nl" if dutch > english else "en"
