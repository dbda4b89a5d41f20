// The widths at which the layout changes, for what CSS cannot change. The same numbers are in the @media rules.

import { MediaQuery } from "svelte/reactivity";

export const phone = new MediaQuery("max-width: 700px");
export const tablet = new MediaQuery("max-width: 1000px");
