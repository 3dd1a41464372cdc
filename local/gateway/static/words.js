// Every word of the gateway's page, in Dutch and English.

const NL = {
  title: "Antwoord – webhooks",
  skip: "Naar wat er verstuurd is",
  heading: "Webhooks",
  sub: "Van een AI-leverancier, via Antwoord, naar een interne dienst",
  console: "Beheer",
  language: "Taal van deze pagina",
  vendor: "AI-leverancier",
  vendorWhat: "Ondertekent elke gebeurtenis, en probeert het opnieuw zolang niemand haar aanneemt.",
  gateway: "Antwoord",
  gatewayWhat: "Neemt elke gebeurtenis één keer aan, en bezorgt haar tot ze aankomt.",
  receiver: "Ontvanger",
  receiverWhat: "Controleert de handtekening, en doet iets één keer per gebeurtenis.",
  type: "Gebeurtenis",
  how: "Manier",
  send: "Versturen",
  sent: "Verstuurd, en wat Antwoord zei",
  nothingSent: "Nog niets verstuurd.",
  noEvents: "Nog geen gebeurtenissen. Verstuur er een.",
  eventsAway: "De gebeurtenissen zijn nu niet te lezen; de database is weg.",
  arrived: "Aangekomen",
  nothingArrived: "Nog niets aangekomen.",
  acted: "keer gehandeld",
  seen: "dubbel, herkend",
  refused: "handtekening fout",
  faults: "Storingen van de ontvanger",
  allOff: "Alles uit",
  enable: "Weer aanzetten",
  reset: "Niet langer wachten",
  replayOne: "1 mislukte opnieuw bezorgen",
  replay: "{count} mislukte opnieuw bezorgen",
  hurry: "Nu proberen",
  again: "Opnieuw versturen",
  more: "In het beheer",
  own: "van Antwoord zelf",
  replayed: "herhaling",
  tries: "poging {used} van {most}",
  round: "ronde {run}",
  next: "Volgende poging over {time}",
  soon: "Volgende poging zo",
  running: "Wordt nu bezorgd",
  offline: "Geen verbinding met de omgeving. Ik probeer het opnieuw…",
  notDone: "Dat lukte niet. Draait de omgeving nog?",
  healthy: "Neemt bezorgingen aan",
  failing: "{count} mislukt op rij",
  open: "Te vaak mislukt: bezorgingen wachten, één proef per keer (over {time})",
  openNow: "Te vaak mislukt: bezorgingen wachten, één proef per keer",
  disabled: "Staat uit ({why}): er wordt niets bezorgd",
  why: { gone: "antwoordde 410", by_hand: "met de hand" },
  waiting: "{count} wachten",
  dead: "{count} mislukt",
  told: "{type}: {state}",
  hows: {
    "as usual": ["Gewoon", "Eén keer, en opnieuw als het niet lukt."],
    many: ["Twintig tegelijk", "Dezelfde gebeurtenis twintig keer tegelijk: er mag er één ontstaan."],
    changed: ["Zelfde id, andere inhoud", "De tweede wordt geweigerd (422)."],
    forged: ["Vervalst", "Met een verkeerd geheim ondertekend: geweigerd (403)."],
    old: ["Een uur oud", "Goed ondertekend, maar te oud: geweigerd (403)."],
    poison: ["Vergiftigd", "Tien inhouden waar lezers van stukgaan: bewaard of geweigerd, nooit een fout van ons."],
  },
  fault: {
    down: ["Ligt plat (500)", "Wordt opnieuw geprobeerd, steeds later"],
    throttled: ["Heeft het te druk (429)", "Vraagt om 10 seconden wachten"],
    refuses: ["Weigert (400)", "Opnieuw proberen helpt niet: meteen mislukt"],
    gone: ["Bestaat niet meer (410)", "De bestemming gaat uit"],
    silent: ["Zwijgt", "Geen antwoord; na 5 seconden geldt het als mislukt"],
    slow: ["Is traag", "Elk antwoord duurt 2 seconden"],
    drop_before: ["Verbinding weg vóór handelen", "Er is niets gedaan"],
    drop_after: ["Verbinding weg ná handelen", "De volgende poging is dubbel: de ontvanger herkent haar"],
    gateway: ["Gateway geeft op (502)", "Er is gehandeld; de volgende poging is dubbel"],
    drip: ["Antwoord druppelt", "Eén teken per halve seconde"],
  },
  state: {
    waiting: "Wacht", delivered: "Bezorgd", dead: "Mislukt", held: "Wacht op een mens", rejected: "Afgewezen", closed: "Afgesloten",
    running: "Bezig", nobody: "Voor niemand",
  },
  outcome: { delivered: "aangenomen", failed: "mislukt", interrupted: "afgebroken" },
  verdict: { acted: "gehandeld", seen: "dubbel", refused: "geweigerd" },
  error: {
    timeout: "geen antwoord op tijd", connect: "geen verbinding", dropped: "verbinding weg", broken_answer: "onleesbaar antwoord", unavailable: "tijdelijk niet beschikbaar", throttled: "te druk",
    rejected: "geweigerd", redirected: "doorverwezen", gone: "bestaat niet meer", endpoint_disabled: "bestemming staat uit",
    expired: "te lang gewacht",
    crashed: "host gestopt",
  },
};

const EN = {
  title: "Antwoord – webhooks",
  skip: "To what was sent",
  heading: "Webhooks",
  sub: "From an AI vendor, through Antwoord, to an internal service",
  console: "Console",
  language: "Language of this page",
  vendor: "AI vendor",
  vendorWhat: "Signs each event, and tries again while nobody accepts it.",
  gateway: "Antwoord",
  gatewayWhat: "Takes each event once, and delivers it until it arrives.",
  receiver: "Receiver",
  receiverWhat: "Verifies the signature, and acts once on each event.",
  type: "Event",
  how: "Way",
  send: "Send",
  sent: "Sent, and what Antwoord said",
  nothingSent: "Nothing sent yet.",
  noEvents: "No events yet. Send one.",
  eventsAway: "The events cannot be read now; the database is away.",
  arrived: "Arrived",
  nothingArrived: "Nothing has arrived yet.",
  acted: "times acted",
  seen: "duplicates, known",
  refused: "bad signatures",
  faults: "The receiver's faults",
  allOff: "All off",
  enable: "Enable again",
  reset: "Wait no longer",
  replayOne: "Deliver 1 dead one again",
  replay: "Deliver {count} dead ones again",
  hurry: "Try now",
  again: "Send again",
  more: "In the console",
  own: "of Antwoord itself",
  replayed: "replay",
  tries: "try {used} of {most}",
  round: "round {run}",
  next: "Next try in {time}",
  soon: "Next try soon",
  running: "Being delivered",
  offline: "No connection. Trying again…",
  notDone: "That did not work. Is `up` still running?",
  healthy: "Takes deliveries",
  failing: "{count} failed in a row",
  open: "Failed too often: deliveries wait, one probe at a time (in {time})",
  openNow: "Failed too often: deliveries wait, one probe at a time",
  disabled: "Disabled ({why}): nothing is delivered",
  why: { gone: "answered 410", by_hand: "by hand" },
  waiting: "{count} waiting",
  dead: "{count} dead",
  told: "{type}: {state}",
  hows: {
    "as usual": ["As usual", "Once, and again if that fails."],
    many: ["Twenty at once", "The same event twenty times at once: one may come of it."],
    changed: ["Same id, other content", "The second one is refused (422)."],
    forged: ["Forged", "Signed with a wrong secret: refused (403)."],
    old: ["An hour old", "Signed well, but too old: refused (403)."],
    poison: ["Poisoned", "Ten bodies that break parsers: stored or refused, never a fault of ours."],
  },
  fault: {
    down: ["Is down (500)", "Tried again, later and later"],
    throttled: ["Is too busy (429)", "Asks to wait 10 seconds"],
    refuses: ["Refuses (400)", "Trying again cannot help: dead at once"],
    gone: ["Is no more (410)", "The endpoint is disabled"],
    silent: ["Is silent", "No answer; after 5 seconds it counts as failed"],
    slow: ["Is slow", "Each answer takes 2 seconds"],
    drop_before: ["Hangs up before acting", "Nothing was done"],
    drop_after: ["Hangs up after acting", "The next try is a duplicate: the receiver knows it"],
    gateway: ["A gateway gives up (502)", "It has acted; the next try is a duplicate"],
    drip: ["The answer drips", "One character every half second"],
  },
  state: {
    waiting: "Waiting", delivered: "Delivered", dead: "Dead", held: "Waits for a person", rejected: "Rejected", closed: "Closed",
    running: "Running", nobody: "For nobody",
  },
  outcome: { delivered: "accepted", failed: "failed", interrupted: "interrupted" },
  verdict: { acted: "acted", seen: "duplicate", refused: "refused" },
  error: {
    timeout: "no answer in time", connect: "no connection", dropped: "connection lost", broken_answer: "unreadable answer", unavailable: "not available now", throttled: "too busy",
    rejected: "refused", redirected: "redirected", gone: "is no more", endpoint_disabled: "endpoint disabled",
    expired: "waited too long",
    crashed: "host stopped",
  },
};

const CATALOGUES = { nl: NL, en: EN };
const KEY = "antwoord-gateway-language";

let language = remembered() || (navigator.language.startsWith("nl") ? "nl" : "en");

function remembered() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept in CATALOGUES ? kept : null;
  } catch {
    return null; // storage may be forbidden; the page works without it
  }
}

export const currentLanguage = () => language;

export function setLanguage(chosen) {
  language = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // see above
  }
}

/** The words for a key, in the page's language; `{name}` is filled from `values`. */
export const words = (key, values = {}) => CATALOGUES[language][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);

/** One word of a table; what the table does not know is shown as it is. */
export const wordIn = (table, key) => CATALOGUES[language][table][key] ?? String(key);

/** A length of time in words: 6 ms, 0.3 s, 12 s, 5 min, 2 h. */
export function lasting(value) {
  if (value > 0 && value < 0.1) return `${Math.max(Math.round(value * 1000), 1)} ms`;
  if (value >= 5400) return `${Math.round(value / 3600)} ${language === "nl" ? "uur" : "h"}`;
  if (value >= 90) return `${Math.round(value / 60)} min`;
  const digits = value < 10 && !Number.isInteger(value) ? 1 : 0;
  return `${value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits })} s`;
}

export function clock(seconds) {
  const shape = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  return new Date(seconds * 1000).toLocaleTimeString(language, shape);
}
