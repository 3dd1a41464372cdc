"""Tell Dutch from English in a chat message or a document, or say that it cannot be told.

A word that only one of the two has counts for that one; a word that is in no list is judged by its spelling. Short messages
are what matters here, and a general detector is unsure about single words; this needs no model and no numpy either, and
loads in a few milliseconds.
"""

from __future__ import annotations

import re
from typing import Literal

type Language = Literal["nl", "en"]

_WORD = 6  # points for a word of a list, and the most that a word's spelling gives
_LEAD = 4  # fewer points between the two is a guess
_SPELLED_LETTERS = range(4, 31)  # shorter words are loans and abbreviations as often as not, longer ones no words
_CHARACTERS_READ = 10_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that both have are in neither list: is, in, was, we, me, had, her, over, want, week, die, stop, help, contract.
_DUTCH = _words(
    """
    aan aanvragen acht achter afdeling al alle alleen allemaal als alsnog altijd ander andere baan bedankt
    bedrag beetje behalve beide ben bent bij bijna bijvoorbeeld binnen blijf blijft blijven buiten daar daarna
    daarom dag dagen dan dank dankje dankjewel dat deel derde deze dezelfde dinsdag dit doe doei doen doet
    donderdag dus duurt echt een eens eerder eerst eerste eigen enige enkele er eraan erbij erg ergens ervan
    euro feestdagen fiets fijn fijne formulier ga gaan gaat gebruik gebruiken geef geen gegeven geld geldt
    gemaakt geval gewoon gisteren goed goede goedemiddag goedemorgen goedenavond goeie graag groetjes haar halen
    hallo heb hebben hebt heeft heel helaas hele het hetzelfde hier hij hoe hoef hoeft hoelang hoeveel hoi hoor
    houden hun hunne idd ieder iedereen iemand iets ik indien inleveren ja jaar jarig je jij jou jouw juist
    jullie kan kapot keer klopt kom komen komt kosten krijg krijgen krijgt kun kunnen kunt kwijt laat laatste
    lekker lukt maak maakt maal maand maandag maar mag mailen maken makkelijk medewerker mee meer meld melden
    met meteen mevrouw mij mijn minder misschien mn moest moet moeten mogelijk mogen morgen naar naast nadat nee
    neem nemen niemand niet niets nieuw nieuwe nodig nog nogmaals nooit nou nu ofwel oke oké om omdat onder
    ongeveer onkosten ons onze ook op opnieuw ouders overleden overuren parkeren pensioen precies prima regelen
    reiskosten rond salaris samen sinds sleutel snap sneller sommige soms sowieso staan staat steeds straks stuk
    sturen stuur sws tegen telefoonnummer tenzij terug thuis tijd tijdens toch toe toen tot tussen tweede u uit
    uren uur uw vaak vakantie vallen vanaf vandaag vanwege vast veel verder verliezen verlof vier vind vinden
    volgend volgende volgens voor vooraf vorige vraag vraagje vragen vrij vrijdag vrouw waar waarbij waarin
    waarom waaronder waarvan waarvoor wachten wachtwoord wanneer waren wat weer weet weg wel welk welke werk
    werken werkplek werkt weten wie wij wil willen wilt woensdag word worden wordt zaak zaterdag ze zeg zeggen
    zei zelf zelfs ziek zien ziet zij zijn zit zitten zo zo'n zoals zodat zodra zoek zoeken zoiets zondag zonder
    zou zouden zulke zullen zult zwanger één
    """
)

_ENGLISH = _words(
    """
    a about after afternoon again allowed already also although always am an and another any anybody anyone
    anything are aren't around ask asked at away back be because been before being between bike both break bring
    broken but by bye call called came can't cannot canteen cause claim claims colleague colleagues come
    congrats cost costs could couldn't day days desk did didn't different do does doesn't doing don't done dont
    down due during each either else enough even evening ever every everyone everything expenses few fill find
    fine first follow following for forgot form found friday from full get gets getting give given go goes going
    gonna good great has have haven't having he hello here hey hi him his holiday holidays home hour hours how
    however husband i i'd i'll i'm i've if im instead isn't it it's its job keep keys kid kids know leave left
    less let lost made mail make makes many maybe mean members mileage monday money month months more morning
    most much must my necessary need needs neither never new night no nobody none nope nor not nothing now nvm
    off office often one ones only onto or other our out owe own paid parental parking pay payday payslip
    pension people phone please possible public question quick rather really receive regarding same say see send
    several shall she should show sick some someone something soon spend such sunday sure take tell than thank
    thanks that that's the their them themselves then there therefore these they thing things think this those
    though through thursday thx today together tomorrow too travel tried trust tuesday two under understand
    unless until up upon us use used uses using usually vacation very wedding wednesday well went were what
    what's when where where's whether which while who who's whom whose why wife will with within without won't
    work working works would wouldn't write wrong yeah year years yep yes yesterday yet you you're your yours
    """
)

# Loans whose spelling points to the other language.
_BOTH = _words(
    """
    account april badge bonus budget camera chat computer contact contract december deadline
    document feedback film hotel internet intranet laptop lunch meeting november portal printer
    project protocol roaming september service sorry status taxi team training uniform update weekend wifi
    """
)

# Words of other languages, common enough to show that a message is in neither.
_OTHER = _words(
    """
    aber auch avec bin bonjour como con cuando czy das del dla dni dobry el est für gibt guten ich ile ist jak
    jest jours kann kein les los mam mein merci merhaba nicht oder para pas por pour puedo quand que qué sie
    sind sont su tengo una und urlaub urlop vacaciones vous wann wenn wir
    """
)

# Two or three letters in a row and how far they speak for Dutch (above 0) or English: the rounded log of how many more words
# of the one have them, counted in 25,000 words of each. `^` begins a word, `$` ends it.
_SPELLING = {
    letters: points
    for points, row in (
        (3, "aa aan aar cht eer ek eke en$ erd erk ij ijk jk ken kk kke kt lij oe oor"),
        (2, "^aa ^ge ^on ^ui ^v ^ve ^vo ^z aal bes de$ ege ei eid eld eli eu ge geb gel"),
        (2, "gen gev ie$ ige ik jk$ ke kel ket ko nde nge ond"),
        (2, "rd rde sch tie toe uw vo voo zi zo"),
        (1, "^b ^be ^g ^o be de der ee el en er ere ht ie n$ nd oo ren rk ste ui ve ver we"),
        (-1, "^a ^co ^e ^f ^p ^pr ^r ^re ^s at ate ce co d$ ed ent es$ ng$ nt$ s$ se ti un"),
        (-2, "^ad ^c ^ex ^su ab ca ce$ ea ex io nce on$ ons ow rea su tin tio ts$"),
        (-3, "^un abl ck ded ed$ ion ity lly ly ly$ ry ry$ ss$ ted ty ty$ y$"),
    )
    for letters in row.split()
}

_NOISE = re.compile(r"https?://\S+|www\.\S+|\S+@\S+|\S+\.(?:nl|com|org|net|eu|be|md|txt)\b\S*", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_FOREIGN_LETTER = re.compile(r"[^\x00-\u024f\u2019]")


def detect(text: str) -> Language | None:
    """The language, or None when unsure: names, numbers, emoji, a word that both have, or neither of the two."""
    words = _WORDS.findall(_NOISE.sub(" ", text[:_CHARACTERS_READ]))
    # How a name is spelled says nothing about the language that its bearer writes.
    spelled = not (len(words) > 1 and all(word[0].isupper() for word in words))
    dutch = english = other = 0
    for written in words:
        word = written.lower().replace("’", "'")
        if word in _OTHER or _FOREIGN_LETTER.search(word):
            other += _WORD
        elif (points := _points(word, spelled)) > 0:
            dutch += points
        else:
            english -= points
    most, lead = max(dutch, english), abs(dutch - english)
    if lead < _LEAD or lead * 6 < most or other >= most:
        return None
    return "nl" if dutch > english else "en"


def _points(word: str, spelled: bool) -> int:
    """How far a word speaks for Dutch (above 0) or English (below)."""
    if word in _DUTCH:
        return _WORD
    if word in _ENGLISH:
        return -_WORD
    if not spelled or word in _BOTH or len(word) not in _SPELLED_LETTERS:
        return 0
    framed = f"^{word}$"
    letters = {framed[at : at + length] for length in (2, 3) for at in range(len(framed) - length + 1)}
    return max(-_WORD, min(_WORD, sum(_SPELLING.get(group, 0) for group in letters)))
