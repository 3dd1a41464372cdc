// The language of a page: its reader's choice, kept in the browser, and the words in it.

/** How to speak: `catalogues` has the words of each language, and the choice is kept under `key`. */
export function speaker(catalogues, key) {
  let language = remembered() || (navigator.language.startsWith("nl") ? "nl" : "en");

  function remembered() {
    try {
      const kept = localStorage.getItem(key);
      return kept in catalogues ? kept : null;
    } catch {
      return null; // storage may be forbidden; the page works without it
    }
  }

  function setLanguage(chosen) {
    language = chosen;
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // see above
    }
  }

  return {
    currentLanguage: () => language,
    setLanguage,
    /** The words for a key; `{name}` is filled from `values`. */
    words: (word, values = {}) => catalogues[language][word].replace(/\{(\w+)\}/g, (_, name) => values[name]),
    /** A list or table of words. */
    wordsOf: (table) => catalogues[language][table],
    /** One word of a table; what the table does not know is shown as it is. */
    wordIn: (table, word) => catalogues[language][table][word] ?? String(word),
  };
}
