"""Fills cases.json again: what the cleaner of diffusers 0.42.1 makes of each prompt, with beautifulsoup4
4.15.0, ftfy 6.3.1 and Python 3.11."""

import json
import pathlib

from diffusers.pipelines.pixart_alpha.pipeline_pixart_alpha import PixArtAlphaPipeline


class Cleaner:
    bad_punct_regex = PixArtAlphaPipeline.bad_punct_regex
    _clean_caption = PixArtAlphaPipeline._clean_caption


path = pathlib.Path(__file__).with_name("cases.json")
clean = Cleaner()._clean_caption
cases = [[prompt, clean(clean(prompt))] for prompt, *_ in json.loads(path.read_text())]
path.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
