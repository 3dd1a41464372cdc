// Every word of the page, in Dutch and English.

const NL = {
  title: "Antwoord – telefoon",
  skip: "Naar het invoerveld",
  phones: "Telefoons",
  unknownNumber: "Een onbekend nummer",
  add: "Nummer toevoegen",
  badNumber: "Dat is geen telefoonnummer. Schrijf het zoals +31612345678.",
  close: "Sluiten",
  showPeople: "Telefoons tonen",
  showDrawer: "Storingen en taken tonen",
  language: "Taal van deze pagina",
  as: "als {name}",
  typing: "typt…",
  suggestions: "Voorbeeldvragen",
  attach: "Een foto sturen",
  compose: "Bericht",
  send: "Versturen",
  notSent: "Het bericht kon niet worden verstuurd. Draait de omgeving nog?",
  begin: "Stel een vraag over het personeelshandboek, in het Nederlands of Engels.",
  today: "Vandaag",
  yesterday: "Gisteren",
  unread: "{count} nieuw",
  newAnswer: "Antwoord aan {name}: {text}",
  photo: "Foto",
  source: "Bron",
  status: { sent: "Verzonden", delivered: "Afgeleverd", read: "Gelezen", failed: "Niet aangekomen" },
  behind: "Achter de schermen",
  faults: "Storingen",
  jobs: "Taken",
  noJobs: "Nog geen taken. Stuur een bericht.",
  jobsAway: "De taken zijn nu niet te lezen; de database is weg.",
  offline: "Geen verbinding met de omgeving. Ik probeer het opnieuw…",
  fault: {
    model_throttle: ["Model heeft het te druk (429)", "Vraagt om 5 seconden wachten"],
    model_down: ["Model ligt plat (503)", "Antwoorden en zoeken mislukken"],
    model_slow: ["Model is traag", "Elk antwoord duurt 12 seconden langer"],
    content_filter: ["Inhoudsfilter", "Het model weigert elke vraag"],
    twilio_throttle: ["Te druk (429)", "Zeker niet verstuurd; vraagt om 5 seconden wachten"],
    twilio_key: ["Sleutel geweigerd (401)", "Zeker niet verstuurd; al het versturen rust"],
    twilio_refuse: ["Twilio weigert (400)", "Opnieuw proberen helpt niet"],
    twilio_timeout: ["Geen antwoord, niet aangenomen", "Het bericht gaat niet door, en niemand weet het"],
    twilio_timeout_after: ["Geen antwoord, wel aangenomen", "Het bericht gaat door, het antwoord komt te laat"],
    twilio_drop_before: ["Verbinding weg voor aannemen", "Het bericht gaat niet door, en niemand weet het"],
    twilio_drop: ["Verbinding weg na aannemen", "Het bericht gaat door, het antwoord niet"],
    twilio_down: ["Twilio ligt plat (500)", "Niet aangenomen, maar dat staat er niet bij"],
    twilio_gateway: ["Gateway geeft op (502)", "Het bericht gaat toch door"],
    twilio_broken: ["Antwoord half", "Het bericht gaat door, het antwoord is onleesbaar"],
    twilio_drip: ["Antwoord druppelt", "Eén teken per kwart seconde; het bericht gaat door"],
    lookup_late: ["Lijst loopt achter", "Toont een bericht pas na 15 seconden"],
    lookup_fails: ["Nakijken mislukt (503)", "Na een half uur beslist een mens"],
    lookup_silent: ["Nakijken krijgt geen antwoord", "Elke keer tien seconden stilte"],
    lookup_redacted: ["Lijst zonder teksten", "Twilio bewaart de inhoud niet"],
    lookup_foreign: ["Een ander bericht ertussen", "Iemand anders schrijft vanaf hetzelfde nummer"],
    lookup_clock_20: ["Klok 20 seconden voor", "Wordt verrekend"],
    lookup_clock_90: ["Klok 90 seconden voor", "Te ver: het nakijken telt niet"],
    callback_lost: ["Komen niet aan", "Alleen nakijken geeft zekerheid"],
    callback_late: ["Komen te laat", "Tien seconden later"],
    callback_twice: ["Komen dubbel", "Elke melding twee keer"],
    callback_reversed: ["Komen omgekeerd", "Eerst gelezen, dan afgeleverd, dan verzonden"],
    callback_early: ["Komen voor het antwoord", "De eerste melding is er eerder dan wijzelf"],
    callback_window: ["24 uur gelden", "Na een dag stilte mislukt de aflevering (63016)"],
    webhook_lost: ["Komt niet aan", "Het bericht staat alleen bij Twilio"],
    webhook_late: ["Komt te laat", "Vijf seconden later"],
    webhook_twice: ["Komt dubbel", "Hetzelfde bericht twee keer"],
    webhook_stop: ["Twilio houdt STOP bij", "Antwoordt zelf, en weigert daarna (21610)"],
  },
  group: {
    model: "Model", create: "Versturen", lookup: "Nakijken bij Twilio", callback: "Statusmeldingen", webhook: "Binnenkomende berichten",
  },
  groupOn: "{count} aan",
  allOff: "Alles uit",
  part: "Deel {part} van {parts}",
  sendStatus: {
    draft: "Klaar om te versturen", sending: "Wordt verstuurd", doubt: "Onzeker of het aankwam", held: "Vastgehouden: een mens beslist",
    sent: "Verzonden", delivered: "Afgeleverd", read: "Gelezen", failed: "Niet verstuurd", undelivered: "Niet afgeleverd",
  },
  evidence: {
    answer: "Twilio antwoordde", callback: "statusmelding", list: "gevonden in de lijst van Twilio", person: "een mens besliste",
  },
  story: {
    refused: "geweigerd", not_sent: "zeker niet verstuurd", ambiguous: "afgebroken", lookup_found: "gevonden",
    lookup_empty: "niet in de lijst", lookup_failed: "nakijken mislukt", lookup_foreign: "vreemd bericht", second_sid: "dubbel!",
    held: "vastgehouden", resend: "opnieuw", released: "vrijgegeven", closed: "gesloten",
  },
  kill: ["Host hard stoppen", "Midden in het werk, zonder waarschuwing"],
  killButton: "Stop",
  killed: "Gestopt",
  type: {
    autoreply: "Vraag beantwoorden",
    send_message: "Bericht versturen",
    embed_record: "Document verwerken",
    suggest: "Voorstel maken",
    import_people: "Mensen importeren",
    deliver_event: "Gebeurtenis bezorgen",
    deliver_event: "Gebeurtenis doorgeven",
  },
  state: {
    pending: "In de wachtrij",
    waiting: "Wacht",
    processing: "Bezig",
    done: "Klaar",
    failed: "Mislukt",
    held: "Vastgehouden",
  },
  attempts: "poging {number} van {max}",
  next: "Volgende poging over {time}",
  soon: "Volgende poging nu",
  earlier: "{count} eerdere pogingen",
  running: "Is nu bezig",
  settled: "Opgelost: Twilio meldde dat het bericht er is",
  outcome: {
    done: "Gelukt", retry: "Mislukt, later opnieuw", failed: "Mislukt, geen nieuwe poging", snoozed: "Wacht even",
    continued: "Gaat verder", returned: "Teruggegeven", crashed: "Afgebroken, opnieuw opgepakt",
  },
  error: {
    timeout: "geen antwoord op tijd", dropped: "verbinding verbroken", connect: "geen verbinding", throttled: "te druk",
    unavailable: "dienst niet beschikbaar", credential: "sleutel geweigerd", content_filter: "geweigerd door het inhoudsfilter",
    rejected: "geweigerd", broken_answer: "antwoord onleesbaar", empty_answer: "antwoord zonder tekst", database: "database weg",
    database_refused: "database weigerde", unexpected: "onverwachte fout", no_text: "document zonder tekst",
    held: "onzeker of het verstuurd is", not_sent: "niet verstuurd", too_late: "te laat om te versturen",
    unreachable: "niet bereikbaar", bad_payload: "taak onleesbaar", expired: "duurde te lang", waiting: "nog niet zover",
    poison: "steeds afgebroken", embedding_width: "vectoren van een andere breedte",
  },
  questions: [
    "Hoeveel vakantie-uren heb ik?",
    "Hoe laat moet ik bellen als ik ziek ben?",
    "Hoeveel dagen per week mag ik thuiswerken?",
    "Wat voor weer wordt het morgen?",
  ],
};

const EN = {
  title: "Antwoord – phone",
  skip: "Go to the message field",
  phones: "Phones",
  unknownNumber: "An unknown number",
  add: "Add number",
  badNumber: "That is no phone number. Write it like +31612345678.",
  close: "Close",
  showPeople: "Show phones",
  showDrawer: "Show faults and jobs",
  language: "Language of this page",
  as: "as {name}",
  typing: "typing…",
  suggestions: "Suggested questions",
  attach: "Send a photo",
  compose: "Message",
  send: "Send",
  notSent: "The message could not be sent. Is everything still running?",
  begin: "Ask a question about the employee handbook, in Dutch or English.",
  today: "Today",
  yesterday: "Yesterday",
  unread: "{count} new",
  newAnswer: "Answer to {name}: {text}",
  photo: "Photo",
  source: "Source",
  status: { sent: "Sent", delivered: "Delivered", read: "Read", failed: "Not delivered" },
  behind: "Behind the scenes",
  faults: "Faults",
  jobs: "Jobs",
  noJobs: "No jobs yet. Send a message.",
  jobsAway: "The jobs cannot be read now; the database is away.",
  offline: "No connection. Trying again…",
  fault: {
    model_throttle: ["Model throttles (429)", "Asks to wait 5 seconds"],
    model_down: ["Model is down (503)", "Answers and search fail"],
    model_slow: ["Model is slow", "Each answer takes 12 seconds longer"],
    content_filter: ["Content filter", "The model refuses every question"],
    twilio_throttle: ["Too busy (429)", "Surely not sent; asks to wait 5 seconds"],
    twilio_key: ["Key refused (401)", "Surely not sent; all sending rests"],
    twilio_refuse: ["Twilio refuses (400)", "Trying again does not help"],
    twilio_timeout: ["No answer, not accepted", "The message does not go out, and nobody knows"],
    twilio_timeout_after: ["No answer, but accepted", "The message goes out, the answer comes too late"],
    twilio_drop_before: ["Line drops before accepting", "The message does not go out, and nobody knows"],
    twilio_drop: ["Line drops after accepting", "The message goes out, the answer is lost"],
    twilio_down: ["Twilio is down (500)", "Not accepted, but it does not say so"],
    twilio_gateway: ["Gateway gives up (502)", "The message goes out all the same"],
    twilio_broken: ["Half an answer", "The message goes out, the answer is unreadable"],
    twilio_drip: ["Answer drips", "A character each quarter second; the message goes out"],
    lookup_late: ["List lags", "Shows a message only after 15 seconds"],
    lookup_fails: ["Looking fails (503)", "After half an hour a person decides"],
    lookup_silent: ["Looking gets no answer", "Ten seconds of silence each time"],
    lookup_redacted: ["List without texts", "Twilio does not keep what was said"],
    lookup_foreign: ["Another message in between", "Somebody else writes from the same number"],
    lookup_clock_20: ["Clock 20 seconds ahead", "Is taken into account"],
    lookup_clock_90: ["Clock 90 seconds ahead", "Too far: the look does not count"],
    callback_lost: ["Never come", "Only looking gives certainty"],
    callback_late: ["Come late", "Ten seconds later"],
    callback_twice: ["Come twice", "Each report two times"],
    callback_reversed: ["Come in reverse", "Read first, then delivered, then sent"],
    callback_early: ["Come before the answer", "The first report is there before we know"],
    callback_window: ["24 hours apply", "After a day of silence delivery fails (63016)"],
    webhook_lost: ["Never comes", "The message is with Twilio alone"],
    webhook_late: ["Comes late", "Five seconds later"],
    webhook_twice: ["Comes twice", "The same message two times"],
    webhook_stop: ["Twilio keeps STOP", "Answers by itself, and refuses from then on (21610)"],
  },
  group: {
    model: "Model", create: "Sending", lookup: "Looking at Twilio", callback: "Status reports", webhook: "Incoming messages",
  },
  groupOn: "{count} on",
  allOff: "All off",
  part: "Part {part} of {parts}",
  sendStatus: {
    draft: "Ready to be sent", sending: "Being sent", doubt: "Unsure whether it arrived", held: "Held: a person decides",
    sent: "Sent", delivered: "Delivered", read: "Read", failed: "Not sent", undelivered: "Not delivered",
  },
  evidence: {
    answer: "Twilio answered", callback: "status report", list: "found in Twilio's list", person: "a person decided",
  },
  story: {
    refused: "refused", not_sent: "surely not sent", ambiguous: "broken off", lookup_found: "found",
    lookup_empty: "not in the list", lookup_failed: "looking failed", lookup_foreign: "foreign message", second_sid: "twice!",
    held: "held", resend: "again", released: "released", closed: "closed",
  },
  kill: ["Kill the host", "In the middle of its work, without warning"],
  killButton: "Kill",
  killed: "Killed",
  type: {
    autoreply: "Answer a question",
    send_message: "Send a message",
    embed_record: "Process a document",
    suggest: "Make a suggestion",
    import_people: "Import people",
    deliver_event: "Deliver an event",
    deliver_event: "Deliver an event",
  },
  state: {
    pending: "Queued",
    waiting: "Waiting",
    processing: "Running",
    done: "Done",
    failed: "Failed",
    held: "Held",
  },
  attempts: "attempt {number} of {max}",
  next: "Next try in {time}",
  soon: "Next try now",
  earlier: "{count} earlier attempts",
  running: "Running now",
  settled: "Settled: Twilio reported that it has the message",
  outcome: {
    done: "Succeeded", retry: "Failed, again later", failed: "Failed, no new try", snoozed: "Waits a moment",
    continued: "Goes on", returned: "Given back", crashed: "Broken off, taken up again",
  },
  error: {
    timeout: "no answer in time", dropped: "connection dropped", connect: "no connection", throttled: "too busy",
    unavailable: "service unavailable", credential: "key refused", content_filter: "stopped by the content filter",
    rejected: "refused", broken_answer: "unreadable answer", empty_answer: "answer without text", database: "database away",
    database_refused: "database refused", unexpected: "unexpected error", no_text: "document without text",
    held: "unsure whether it was sent", not_sent: "not sent", too_late: "too late to send",
    unreachable: "cannot be reached", bad_payload: "unreadable job", expired: "took too long", waiting: "not yet",
    poison: "broken off each time", embedding_width: "vectors of another width",
  },
  questions: [
    "When is my holiday allowance paid?",
    "How does the bike plan work?",
    "Can I go to the dentist during working hours?",
    "Which film should I watch tonight?",
  ],
};

const CATALOGUES = { nl: NL, en: EN };
const KEY = "antwoord-phone-language";

let language = remembered() || (navigator.language.startsWith("nl") ? "nl" : "en");

function remembered() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept in CATALOGUES ? kept : null;
  } catch {
    return null; // storage may be forbidden; the page works without it
  }
}

export function currentLanguage() {
  return language;
}

export function setLanguage(chosen) {
  language = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // see above
  }
}

/** The words for a key, in the page's language; `{name}` is filled from `values`. */
export function words(key, values = {}) {
  return CATALOGUES[language][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** A list or table of words. */
export function wordsOf(key) {
  return CATALOGUES[language][key];
}

/** One word of a table; what the table does not know is shown as it is. */
export function wordIn(table, key) {
  return CATALOGUES[language][table][key] ?? String(key);
}

/** Suggested questions in a person's language, then the other's first two. */
export function suggestions(personLanguage) {
  const first = personLanguage in CATALOGUES ? personLanguage : "nl";
  const other = first === "nl" ? "en" : "nl";
  return [
    ...CATALOGUES[first].questions.map((text) => ({ text, language: first })),
    ...CATALOGUES[other].questions.slice(0, 2).map((text) => ({ text, language: other })),
  ];
}

export function seconds(value) {
  if (value >= 90) return `${Math.round(value / 60)} min`;
  const digits = value < 10 ? 1 : 0;
  return `${value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits })} s`;
}

export function clock(date, withSeconds = false) {
  const shape = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (withSeconds) shape.second = "2-digit";
  return date.toLocaleTimeString(language, shape);
}
